// SPDX-License-Identifier: Apache-2.0

package collect_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/ipam/audit"
	"github.com/weft-net/weft/internal/ipam/blockreport"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/migration"
	"github.com/weft-net/weft/internal/node/nodestatus"
	"github.com/weft-net/weft/internal/node/nodestatus/collect"
	"github.com/weft-net/weft/internal/node/policy"
	"github.com/weft-net/weft/internal/node/reconcile"
	"github.com/weft-net/weft/internal/node/unrecorded"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// healthy is a node without a mesh, policies and pools, on which everything is in order.
func healthy() collect.Collector {
	return collect.Collector{
		Node: "n1", Version: "v1",
		Ready:    func() error { return nil },
		Records:  func() ([]attach.Record, error) { return nil, nil },
		Lost:     func() ([]unrecorded.Interface, error) { return nil, nil },
		Check:    func(context.Context) model.CheckReport { return model.CheckReport{} },
		CheckVMs: func(context.Context) model.VMReport { return model.VMReport{} },
		Repairs:  func() uint64 { return 3 },
		Now:      time.Now, After: time.After,
	}
}

// record is the record of a pod's attachment.
func record(pod string, stage attach.Stage, age time.Duration) attach.Record {
	return attach.Record{
		Stage: stage, Serial: time.Now().Add(-age).UnixNano(),
		Request: model.Request{
			ContainerID: pod, IfName: "eth0", Network: "weft", Netns: "/run/netns/" + pod,
			Args: [][2]string{{"K8S_POD_NAMESPACE", "shop"}, {"K8S_POD_NAME", pod}},
		},
	}
}

// wants checks that the findings are these, and no others.
func wants(t *testing.T, s nodestatus.Status, want ...string) {
	t.Helper()
	var got []string
	for _, f := range s.Findings {
		if f.Check != "conntrack" { // of the host that runs the test
			got = append(got, fmt.Sprintf("%s %s: %s", f.Level, f.Check, f.Message))
		}
	}
	for _, w := range want {
		i := slices.IndexFunc(got, func(g string) bool { return strings.HasPrefix(g, w) })
		if i < 0 {
			t.Errorf("missing: %s", w)
			continue
		}
		got = slices.Delete(got, i, i+1)
	}
	for _, g := range got {
		t.Errorf("unexpected: %s", g)
	}
}

// A healthy node has numbers and no findings.
func TestHealthy(t *testing.T) {
	c := healthy()
	c.Records = func() ([]attach.Record, error) {
		return []attach.Record{
			record("a", attach.Done, time.Hour), record("b", attach.Pending, time.Second),
			record("c", attach.Releasing, time.Hour),
			{Stage: attach.Done}, // the last one is of no pod
		}, nil
	}
	c.Pools = func() map[string]blockreport.Counts {
		return map[string]blockreport.Counts{"q": {Blocks: 1, Free: 10, Held: 4}, "p": {Blocks: 2, Free: 5, Held: 1}}
	}
	c.Moving = func() []migration.Attachment {
		vm := model.VMRef{Namespace: "shop", Name: "vm"}
		return []migration.Attachment{
			{VM: vm, State: migration.Awaited},
			{VM: vm, State: migration.Awaited},
			{VM: model.VMRef{Namespace: "shop", Name: "other"}, State: migration.Here},
		}
	}
	s := c.Status(t.Context())
	wants(t, s)
	if s.Node != "n1" || s.Version != "v1" || s.Repairs != 3 || s.Attachments != 3 || s.Pending != 1 || s.Releasing != 1 ||
		s.Unfinished != 2 || s.Broken != 0 || s.Migrations != 1 || s.Blocks != 3 || s.Free != 15 || s.Allocated != 5 ||
		len(s.Pools) != 2 || s.Pools[0] != (nodestatus.Pool{Name: "p", Blocks: 2, Free: 5, Allocated: 1}) {
		t.Errorf("%+v", s)
	}
}

// Each component's faults are findings with their level.
func TestFindings(t *testing.T) {
	c := healthy()
	c.Ready = func() error { return errors.New("no addresses") }
	c.Records = func() ([]attach.Record, error) {
		return []attach.Record{record("slow", attach.Pending, time.Hour)}, errors.New("one is unreadable")
	}
	c.Check = func(context.Context) model.CheckReport {
		return model.CheckReport{Attachments: 4, Unchecked: 1, Problems: []model.CheckProblem{
			{Attachment: "1", Pod: "shop/web", Message: "the link is down\n"}, {Attachment: "2", Gone: true},
		}}
	}
	c.CheckVMs = func(context.Context) model.VMReport {
		return model.VMReport{VMs: 2, Unreadable: "a record", Problems: []model.VMProblem{{VM: "shop/vm", Message: "no tap"}}}
	}
	c.Mesh = func() (reconcile.Status, error) {
		return reconcile.Status{
			Error: "no podCIDR", Topology: mesh.Topology{Problems: []mesh.Problem{{Message: "n2 has no address"}}},
			Fragments: []reconcile.FragmentStatus{{Owner: "mesh/peer/n2", Error: "no such device"}, {Owner: "mesh", OK: true}},
		}, nil
	}
	c.Addresses = func() ([]audit.Finding, error) { return []audit.Finding{{Msg: "address is held twice"}}, nil }
	c.Doctor = func(context.Context) []nodestatus.Finding {
		return []nodestatus.Finding{{Level: nodestatus.Warn, Check: "doctor kernel", Message: "rp_filter is 1"}}
	}
	c.Lost = func() ([]unrecorded.Interface, error) {
		return []unrecorded.Interface{{Attachment: model.AttachmentKey{ContainerID: "c1"}}}, nil
	}
	s := c.Status(t.Context())
	wants(t, s, "warn attachments: records of 1 interfaces are lost, of container c1 first", "bad agent: new pods are not attached: no addresses", "bad attachments: records cannot be read: one is unreadable",
		"warn attachments: pod shop/slow waits for its network since 1h", "skip attachments: 1 of 4 attachments were not checked",
		"bad attachments: shop/web: the link is down", "warn attachments: 2: its network namespace is gone",
		"bad vms: records of VMs cannot be read: a record", "bad vms: shop/vm: no tap", "bad mesh: no podCIDR",
		"bad mesh: n2 has no address", "bad mesh: mesh/peer/n2: no such device", "warn ipam check: address is held twice",
		"warn doctor kernel: rp_filter is 1")
	if s.Broken != 2 || s.VMs != 2 {
		t.Errorf("%+v", s)
	}
}

// counting is a policy enforcer that denies 10 packets between two readings.
type counting struct{ read atomic.Uint64 }

func (c *counting) Summary(context.Context) (policy.Summary, error) {
	return policy.Summary{
		Known:    true,
		Policies: []policy.Known{{Unsupported: "an ICMP port"}, {}},
		Denied:   []policy.Denied{{By: "a", Packets: 10 * c.read.Add(1)}, {By: "b", Packets: 5}},
	}, nil
}

func (*counting) Stats() policy.Stats { return policy.Stats{Quarantined: 1} }

// The rate of denied packets is that of a short time.
func TestDenied(t *testing.T) {
	c := healthy()
	var p counting
	c.Policies = &p
	begin, clock := time.Unix(1_800_000_000, 0), atomic.Int64{}
	c.Now = func() time.Time { return begin.Add(time.Duration(clock.Load())) }
	c.After = func(d time.Duration) <-chan time.Time {
		clock.Add(int64(d))
		return time.After(0)
	}
	s := c.Status(t.Context())
	wants(t, s, "warn policy: ", "bad policy: 1 interfaces are down")
	if s.Policies != 2 || s.Incomplete != 1 || s.Denied != 25 || s.DeniedPerMinute != 600 {
		t.Errorf("%+v", s)
	}
}

// What hangs is not waited for, and is never good: it is a finding of level skip, and the rest is there.
func TestHanging(t *testing.T) {
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	c := healthy()
	c.Records = func() ([]attach.Record, error) { return []attach.Record{record("a", attach.Done, time.Hour)}, nil }
	c.Doctor = func(context.Context) []nodestatus.Finding { <-hang; return nil }
	c.Addresses = func() ([]audit.Finding, error) { <-hang; return nil, nil }
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	s := c.Status(ctx)
	wants(t, s, "skip doctor: not checked", "skip ipam check: not checked")
	if s.Attachments != 1 {
		t.Errorf("%+v", s)
	}
}

// In a large cluster each node probes some peers, and reports that others are not probed.
func TestManyPeers(t *testing.T) {
	c := healthy()
	c.Mesh = func() (reconcile.Status, error) {
		s := reconcile.Status{Topology: mesh.Topology{Self: "n1"}}
		for i := range 999 {
			s.Topology.Peers = append(s.Topology.Peers, &mesh.Peer{Name: fmt.Sprintf("n%d", i+2)})
		}
		return s, nil
	}
	s := c.Status(t.Context())
	found := false
	for _, f := range s.Findings {
		found = found || f.Level == nodestatus.Skip && strings.HasPrefix(f.Message, "967 of 999 peers were not probed")
	}
	if !found || s.Peers != 999 || s.Reached != 0 {
		t.Errorf("%d peers, %+v", s.Peers, s.Findings)
	}
}
