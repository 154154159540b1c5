// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// watchman records the calls of a PolicyEnforcer, and whether the interface existed at that time.
type watchman struct {
	t      *testing.T
	mu     sync.Mutex
	said   []string
	last   map[string]model.WorkloadEndpoint
	stood  map[model.AttachmentKey]bool // policies stand for them
	refuse error
}

func (w *watchman) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, fmt.Sprintf(format, args...))
}

func (w *watchman) all() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := strings.Join(w.said, "; ")
	w.said = nil
	return out
}

// up reports whether the interface can have packets.
func (w *watchman) up(g model.WorkloadEndpoint) bool {
	ns, err := netns.Open(g.Netns)
	if err != nil {
		return false // it is gone, and the interface with it
	}
	defer func() { _ = ns.Close() }()
	out, _ := nettest.Try(ns, "ip", "link", "show", "dev", g.IfName)
	return strings.Contains(out, "LOWER_UP")
}

func (w *watchman) Admit(_ context.Context, all ...model.WorkloadEndpoint) error {
	for _, g := range all {
		w.mu.Lock()
		stood := w.stood[g.Attachment]
		w.mu.Unlock()
		if g.HostEnd == model.HostEndRouted && !stood && w.up(g) {
			w.t.Errorf("%s is up before its policy", g.IfName)
		}
		w.mu.Lock()
		if w.stood == nil {
			w.stood = map[model.AttachmentKey]bool{}
		}
		w.last[g.IfName], w.stood[g.Attachment] = g, w.refuse == nil
		w.mu.Unlock()
		w.note("admit %s %s%s host=%t %v", g.Pod, g.Network, g.IfName, g.HostEnd == model.HostEndRouted, g.Addrs)
	}
	return w.refuse
}

func (w *watchman) Attached(keys ...model.AttachmentKey) {
	for _, k := range keys {
		w.note("attached %s", k.IfName)
	}
}

func (w *watchman) Release(_ context.Context, key model.AttachmentKey) error {
	g := w.last[key.IfName]
	if g.HostEnd == model.HostEndRouted && w.up(g) {
		w.t.Errorf("%s is up after its policy", key.IfName)
	}
	w.mu.Lock()
	delete(w.stood, key)
	w.mu.Unlock()
	w.note("release %s", key.IfName)
	return nil
}

func newGuarded(t *testing.T) (*node, *watchman) {
	n := newNode(t)
	w := &watchman{t: t, last: map[string]model.WorkloadEndpoint{}}
	n.cfg.Policy = w
	n.Attacher = attach.New(n.cfg)
	return n, w
}

// ofPod makes a job that of a pod.
func ofPod(job attach.Job) attach.Job {
	job.Request.Args = [][2]string{{"K8S_POD_NAMESPACE", "shop"}, {"K8S_POD_NAME", "web"}, {"K8S_POD_UID", "u1"}}
	return job
}

const routedPlugin = `{"type":"ptp","ipam":{"type":"host-local","subnet":"10.8.0.0/24","dataDir":"DATA"}}`

// Policy is enforced before anything of the interface does, and until it is down; only the end by which all packets go
// is named.
func TestGuard(t *testing.T) {
	n, w := newGuarded(t)
	n.plugin("other", passOn)
	n.plugin(
		"strange",
		`[ "$CNI_COMMAND" = ADD ] && echo '{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","sandbox":"/x"}],"ips":[{"interface":0,"address":"10.9.0.7/24"}]}'; exit 0`,
	)
	for _, tt := range []struct {
		name    string
		plugins []string
		want    string
	}{
		{"routed", []string{routedPlugin}, "admit shop/web eth0 host=true [10.8.0.2]; attached eth0; release eth0"},
		{"bridge", []string{bridge}, "admit shop/web eth0 host=false [10.8.0.2]; attached eth0; release eth0"},
		{
			"foreign behind",
			[]string{routedPlugin, `{"type":"other"}`},
			"admit shop/web eth0 host=true [10.8.0.2]; attached eth0; release eth0",
		},
		{
			"foreign", []string{
				`{"type":"strange"}`,
			}, "admit shop/web eth0 host=false []; admit shop/web eth0 host=false [10.9.0.7]; attached eth0; release eth0",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			id, ns := n.pod()
			job := ofPod(n.job(n.list(tt.plugins...), id, ns))
			n.add(job)
			n.add(job) // the same answer: nothing is new
			if err := n.Del(t.Context(), job); err != nil {
				t.Error(err)
			}
			got := strings.ReplaceAll(w.all(), "10.8.0.3", "10.8.0.2")
			for i := 4; i < 9; i++ {
				got = strings.ReplaceAll(got, fmt.Sprintf("10.8.0.%d", i), "10.8.0.2")
			}
			if got != tt.want {
				t.Errorf("guard was told\n%s\nwant\n%s", got, tt.want)
			}
			n.clean(tt.name)
		})
	}
}

// What is no pod's has no policy.
func TestGuardOfNoPod(t *testing.T) {
	n, w := newGuarded(t)
	id, ns := n.pod()
	job := n.job(n.list(routedPlugin), id, ns)
	n.add(job)
	if err := n.Del(t.Context(), job); err != nil {
		t.Error(err)
	}
	if got := w.all(); got != "release eth0" {
		t.Errorf("guard was told %q", got)
	}
	n.clean("DEL")
}

// An ADD fails if policy cannot be enforced: its error has the enforcer's code, nothing is left, and the enforcer is
// notified.
func TestPolicyRefuses(t *testing.T) {
	n, w := newGuarded(t)
	w.refuse = model.Errorf(model.CodeTryAgain, "wait", "policies are not known yet")
	id, ns := n.pod()
	job := ofPod(n.job(n.list(routedPlugin), id, ns))
	_, err := n.Add(t.Context(), job)
	wantCode(t, "ADD", err, model.CodeTryAgain, "policy of pod shop/web", "not known yet")
	if got := w.all(); !strings.HasSuffix(got, "; release eth0") || strings.Contains(got, "attached") {
		t.Errorf("guard was told %q", got)
	}
	n.clean("a refused ADD")
}

// Networks that are attached together are guarded together.
func TestPolicyOfBatch(t *testing.T) {
	n, w := newGuarded(t)
	id, ns := n.pod()
	var jobs []attach.Job
	for i, name := range []string{"net", "second"} {
		conf := strings.Replace(n.list(routedPlugin), `"name":"net"`, fmt.Sprintf(`"name":%q`, name), 1)
		job := ofPod(n.job(strings.Replace(conf, "10.8.0", fmt.Sprintf("10.8.%d", i), 1), id, ns))
		job.Request.IfName = fmt.Sprintf("eth%d", i)
		if i > 0 {
			job.Request.Origin = &model.Origin{
				Pod: model.PodRef{Namespace: "shop", Name: "web", UID: "u1"}, Network: "shop/second",
			}
		}
		jobs = append(jobs, job)
	}
	if _, _, err := n.AddAll(t.Context(), jobs); err != nil {
		t.Fatal(err)
	}
	got := w.all()
	for _, want := range []string{
		"admit shop/web eth0 host=true [10.8.0.2]", "admit shop/web shop/secondeth1 host=true [10.8.1.2]", "attached eth0",
		"attached eth1",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in %q", want, got)
		}
	}
	if err := errors.Join(n.DelAll(t.Context(), jobs)...); err != nil {
		t.Error(err)
	}
	if got := w.all(); !strings.Contains(got, "release eth0") || !strings.Contains(got, "release eth1") {
		t.Errorf("guard was told %q", got)
	}
}

// A record says the same of its interface as the ADD did: an agent that starts goes by it.
func TestEndpointOfRecord(t *testing.T) {
	n, w := newGuarded(t)
	id, ns := n.pod()
	job := ofPod(n.job(n.list(routedPlugin), id, ns))
	n.add(job)
	rec, _, err := n.ledger.Get(job.Request.Key())
	if err != nil {
		t.Fatal(err)
	}
	g, ok := rec.Endpoint()
	if !ok || !g.Equal(w.last["eth0"]) || g.Addrs[0] != netip.MustParseAddr("10.8.0.2") {
		t.Errorf("%t %+v\nwant %+v", ok, g, w.last["eth0"])
	}
	n.Attacher = attach.New(n.cfg)
	if err := n.cut("after releasing").Del(t.Context(), job); !errors.Is(err, errCut) {
		t.Error(err)
	}
	w.all()
	if _, err := n.Recover(t.Context()); err != nil {
		t.Error(err)
	}
	if got := w.all(); got != "release eth0" {
		t.Errorf("a recovery that undoes: guard was told %q", got)
	}
	n.clean("Recover")
}
