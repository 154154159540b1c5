// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/blocks"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/plan/plugin"
)

const (
	pooled  = `{"type":"calico","policy":{"type":"k8s"},"ipam":{"type":"calico-ipam","assign_ipv6":"true"}}`
	vmPools = `apiVersion: weft.dev/v1alpha1
kind: AddressPool
metadata: {name: four}
spec: {assignmentMode: Automatic, regions: [{cidr: 10.8.0.0/24, blockSize: 29}]}
---
apiVersion: weft.dev/v1alpha1
kind: AddressPool
metadata: {name: six}
spec: {assignmentMode: Automatic, regions: [{cidr: "fd00:8::/112", blockSize: 124}]}
`
)

// migrating is a node with addresses from pools, and another node that runs the VM.
type migrating struct {
	*node
	here, there *blocks.Engine
	guard       *watchman
	moved       []model.AttachmentKey
}

func newMigrating(t *testing.T) *migrating {
	t.Helper()
	path := t.TempDir()
	if err := os.WriteFile(filepath.Join(path, "pools.yaml"), []byte(vmPools), 0o600); err != nil {
		t.Fatal(err)
	}
	engine := func(node string) *blocks.Engine {
		s, err := dir.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		e, err := blocks.Open(blocks.Config{
			Objects: s.Objects(), Node: node, Dir: t.TempDir(), Now: time.Now, After: time.After, Random: rand.Reader,
		})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	m := &migrating{
		node: routedNode(t), here: engine("here"), there: engine("there"),
		guard: &watchman{t: t, last: map[string]model.WorkloadEndpoint{}},
	}
	m.cfg.Allocators["calico-ipam"] = m.here.Allocators()[2]
	m.cfg.Policy, m.cfg.VMChanged = m.guard, func(key model.AttachmentKey) { m.moved = append(m.moved, key) }
	m.Attacher = attach.New(m.cfg)
	return m
}

// source runs the VM on the other node.
func (m *migrating) source(vm string) []netip.Addr {
	m.t.Helper()
	h, err := m.there.Allocators()[2].(ipam.Reserver).Reserve(m.t.Context(), ipam.Request{
		Conf: json.RawMessage(pooled), Network: "net", ContainerID: "source", IfName: "eth0",
		VM: &model.VMRef{Namespace: "default", Name: vm},
	})
	if err == nil {
		err = h.Commit()
	}
	if err != nil {
		m.t.Fatal(err)
	}
	var addrs []netip.Addr
	for _, ip := range h.Result().IPs {
		addrs = append(addrs, ip.Address.Addr())
	}
	return addrs
}

// target is the pod that the VM migrates to.
func (m *migrating) target(vm, pod string) attach.Job {
	job := m.saying(pooled, pod)
	job.Request.Origin.VM, job.Request.Origin.Incoming = &model.VMRef{Namespace: "default", Name: vm}, true
	return job
}

// ways counts the node's routes to addresses.
func (m *migrating) ways(addrs []netip.Addr) (n int) {
	m.t.Helper()
	for _, a := range addrs {
		family := "-4"
		if a.Is6() {
			family = "-6"
		}
		if nettest.Run(m.t, nil, "ip", family, "route", "show", a.String()) != "" {
			n++
		}
	}
	return n
}

// sources counts the addresses in whose name the node lets packets of pods in.
func (m *migrating) sources(addrs []netip.Addr) (n int) {
	m.t.Helper()
	table := nettest.Run(m.t, nil, "nft", "list", "table", "inet", plugin.SourceTable)
	for _, a := range addrs {
		if strings.Contains(table, " . "+a.String()+" ") {
			n++
		}
	}
	return n
}

func (m *migrating) holds(addrs []netip.Addr) (n int) {
	for _, a := range addrs {
		if m.here.Holds(a) {
			n++
		}
	}
	return n
}

// record is the attachment's.
func (m *migrating) record(job attach.Job) attach.Record {
	m.t.Helper()
	rec, found, err := m.ledger.Get(job.Request.Key())
	if err != nil || !found {
		m.t.Fatal(found, err)
	}
	return rec
}

// TestStandby: an attachment that stands by is there with all that it needs, and nothing leads to it or is said of it,
// before it takes the addresses over; it steps back, comes again, and goes.
func TestStandby(t *testing.T) {
	m := newMigrating(t)
	addrs := m.source("db")
	job := m.target("db", "target")
	result := m.add(job)
	if len(addrs) != 2 || len(result.IPs) != 2 || result.IPs[0].Address.Addr() != addrs[0] ||
		result.IPs[1].Address.Addr() != addrs[1] {
		t.Fatalf("result %+v, the machine has %v", result.IPs, addrs)
	}
	state := func(what string, standby bool, ways int) {
		t.Helper()
		if rec := m.record(job); rec.Standby != standby || (rec.Deferred != nil) != standby {
			t.Errorf("%s: the record is a standby: %t, deferred: %v", what, rec.Standby, rec.Deferred)
		}
		if n := m.ways(addrs); n != ways {
			t.Errorf("%s: %d ways lead there, want %d", what, n, ways)
		}
		if n := m.sources(addrs); n != ways {
			t.Errorf("%s: %d of the addresses may be spoken for, want %d", what, n, ways)
		}
		check := job
		check.Prev = &result
		if err := m.Check(t.Context(), check); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if g := m.guard.last["eth0"]; g.Standby != standby {
			t.Errorf("%s: the guard is told that it stands by: %t", what, g.Standby)
		}
	}
	state("ADD", true, 0)
	if said := m.guard.all(); strings.Contains(said, "attached") {
		t.Errorf("others are told of what stands by: %s", said)
	}
	if m.holds(addrs) != 0 || len(m.moved) != 1 {
		t.Errorf("holds %d, moved %v", m.holds(addrs), m.moved)
	}
	same := m.add(job) // the runtime asks again
	if d := diff(result, same); d != "" {
		t.Error(d)
	}
	for range 2 {
		if err := m.Activate(t.Context(), job.Request.Key()); err != nil {
			t.Fatal(err)
		}
		state("activated", false, 2)
	}
	if m.holds(addrs) != 2 || !strings.Contains(m.guard.all(), "attached") {
		t.Errorf("holds %d after it was activated", m.holds(addrs))
	}
	for _, a := range addrs {
		nettest.Run(t, nil, "ping", "-c1", "-W20", a.String())
	}
	for range 2 {
		if err := m.Retire(t.Context(), job.Request.Key()); err != nil {
			t.Fatal(err)
		}
		state("retired", true, 0)
	}
	if err := m.Activate(t.Context(), job.Request.Key()); err != nil {
		t.Fatal(err)
	}
	state("activated again", false, 2)
	if err := m.Retire(t.Context(), job.Request.Key()); err != nil {
		t.Fatal(err)
	}
	if err := m.Del(t.Context(), job); err != nil {
		t.Error(err)
	}
	m.clean("DEL")
	if err := m.Activate(t.Context(), job.Request.Key()); err == nil {
		t.Error("an attachment that is gone is activated")
	}
}

// TestStandbyKilled: wherever the agent dies while the addresses go over, the next one does it again, and nothing is
// left in the end; a failure of the store leaves it to be done again.
func TestStandbyKilled(t *testing.T) {
	m := newMigrating(t)
	addrs := m.source("db")
	for i, at := range []string{"before activate", "after record active", "after address state", "after transfer"} {
		job := m.target("db", "target"+string(rune('a'+i)))
		m.add(job)
		if m.record(job).Standby != true {
			t.Fatalf("%s: it does not stand by", at)
		}
		if err := m.cut(at).Activate(t.Context(), job.Request.Key()); !errors.Is(err, errCut) {
			t.Fatalf("%s: %v", at, err)
		}
		next := attach.New(m.cfg)
		m.Attacher = next
		if report, err := next.Recover(t.Context()); err != nil || report.Kept != 1 {
			t.Errorf("%s: %+v %v", at, report, err)
		}
		if err := next.Activate(t.Context(), job.Request.Key()); err != nil {
			t.Fatal(err)
		}
		if m.ways(addrs) != 2 || m.holds(addrs) != 2 {
			t.Errorf("%s: %d ways, %d addresses", at, m.ways(addrs), m.holds(addrs))
		}
		if err := next.Del(t.Context(), job); err != nil {
			t.Error(err)
		}
		m.clean(at)
	}
	if err := m.Activate(context.Background(), model.AttachmentKey{
		Network: "net", ContainerID: "none", IfName: "eth0",
	}); err == nil {
		t.Error("what is not there is activated")
	}
}

// TestVMMAC: a VM's interface has the same MAC address in each of its pods, unless another one is configured or keeping
// is disabled. If addresses must be kept, an IPAM type that cannot do that is rejected before anything is changed.
func TestVMMAC(t *testing.T) {
	m := newMigrating(t)
	mac := func(pod string, change func(*model.Origin)) string {
		t.Helper()
		job := m.target("db", pod)
		job.Request.Origin.Incoming = false
		if change != nil {
			change(job.Request.Origin)
		}
		result := m.add(job)
		if err := m.Del(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		return result.Interfaces[1].MAC
	}
	first := mac("one", nil)
	if second := mac("two", nil); second != first {
		t.Errorf("%s, then %s", first, second)
	}
	if other := mac("three", func(o *model.Origin) {
		o.VM = &model.VMRef{Namespace: "default", Name: "web"}
	}); other == first {
		t.Errorf("two machines have %s", other)
	}
	if own := mac("four", func(o *model.Origin) { o.Keep = model.KeepNever }); own == first {
		t.Errorf("nothing is to stay, and %s does", own)
	}
	m.clean("DEL")
	job := m.job(m.list(`{"type":"ptp","ipam":{"type":"static","addresses":[{"address":"10.9.0.2/24"}]}}`), "x",
		nettest.NS(t, "x"))
	job.Request.Args = [][2]string{{"WEFT_VM", "default/db"}, {"WEFT_KEEP_ADDRESS", "true"}}
	_, err := m.Add(t.Context(), job)
	wantCode(t, "an IPAM that keeps nothing", err, model.CodeInvalidConf,
		`ipam.type "static" cannot keep the addresses of virtual machine default/db: it does not support virtual machines`)
	for _, bad := range []struct{ key, value, says string }{
		{"WEFT_VM", "db", `CNI_ARGS WEFT_VM "db" is not NAMESPACE/NAME`},
		{"WEFT_VM", "default/d b", `WEFT_VM`},
		{"WEFT_INCOMING", "yes", `CNI_ARGS WEFT_INCOMING "yes" is neither 1 nor 0`},
		{"WEFT_KEEP_ADDRESS", "yes", `CNI_ARGS WEFT_KEEP_ADDRESS "yes" is neither true nor false`},
	} {
		job.Request.Args = [][2]string{{bad.key, bad.value}}
		_, err := m.Add(t.Context(), job)
		if err == nil || !strings.Contains(err.Error(), bad.says) {
			t.Errorf("%s=%s: %v", bad.key, bad.value, err)
		}
	}
	m.clean("refused")
}
