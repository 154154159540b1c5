// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/kube"
	"github.com/weft-net/weft/internal/nettest"
)

const servicesURL = "/api/v1/namespaces/default/services"

// load is Services of type LoadBalancer on a real API server, and a controller.
type load struct {
	*reported
}

// put creates a Service.
func (l load) put(name, spec, annotations string) {
	l.t.Helper()
	if annotations == "" {
		annotations = "{}"
	}
	l.Do(http.MethodPost, servicesURL, fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"name":%q,"annotations":%s},
		"spec":{"ports":[{"port":80}],"type":"LoadBalancer"%s}}`, name, annotations, spec))
}

// has returns the addresses of a Service, and its condition.
func (l load) has(name string) string {
	l.t.Helper()
	var s struct {
		Status struct {
			LoadBalancer struct{ Ingress []struct{ IP string } }
			Conditions   []struct{ Type, Status, Reason, Message string }
		}
	}
	if err := json.Unmarshal(l.Do(http.MethodGet, servicesURL+"/"+name, nil), &s); err != nil {
		l.t.Fatal(err)
	}
	var words []string
	for _, i := range s.Status.LoadBalancer.Ingress {
		words = append(words, i.IP)
	}
	for _, c := range s.Status.Conditions {
		words = append(words, c.Status, c.Reason, c.Message)
	}
	return strings.Join(words, " ")
}

func (l load) pass() {
	l.t.Helper()
	l.servicesChanged()
	if err := l.Pass(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
}

// TestServices: Services of type LoadBalancer get addresses in their status, with a condition and an event; addresses are
// free when a Service is deleted or no load balancer any more.
func TestServices(t *testing.T) {
	nettest.EndToEnd(t)
	s, _ := kubernetes(t, nil)
	l := load{newReported(t, s)}
	wants := func(name, want string) {
		t.Helper()
		if got := l.has(name); got != want {
			t.Errorf("Service %s has %q, want %q", name, got, want)
		}
	}
	l.put("early", "", "")
	l.pass()
	wants("early", "") // without a pool it is not weft's
	s.Do(http.MethodPost, pools, `{"apiVersion":"weft.dev/v1alpha1","kind":"AddressPool","metadata":{"name":"lan"},
		"spec":{"assignmentMode":"Automatic","allowedUses":["LoadBalancer"],"regions":[{"cidr":"192.0.2.0/30"}]}}`)
	l.put("wanted", `,"loadBalancerIP":"192.0.2.3"`, "")
	l.put("annotated", "", `{"projectcalico.org/loadBalancerIPs":"[\"192.0.2.3\"]"}`)
	l.put("elsewhere", `,"loadBalancerClass":"example.org/metal"`, "")
	l.put("six", `,"ipFamilyPolicy":"PreferDualStack"`, "")
	l.pass()
	wants("early", "192.0.2.0 True Assigned 192.0.2.0 of pool lan")
	wants("elsewhere", "")
	wants("six", "192.0.2.1 True Assigned 192.0.2.1 of pool lan")
	taken := "metadata.annotations[projectcalico.org/loadBalancerIPs]: 192.0.2.3 is in use by Service default/wanted (request another one, or delete that Service)"
	if l.has("annotated") == "192.0.2.3 True Assigned 192.0.2.3 of pool lan" { // of the same second: by name
		wants("wanted", "False AddressInUse spec.loadBalancerIP: 192.0.2.3 is in use by Service default/annotated (request another one, or delete that Service)")
	} else {
		wants("wanted", "192.0.2.3 True Assigned 192.0.2.3 of pool lan")
		wants("annotated", "False AddressInUse "+taken)
		if got := l.events("Service", "annotated", 1); got[0] != "Warning LoadBalancerIPsNotAssigned AddressInUse: "+taken {
			t.Errorf("events of a Service without an address: %q", got)
		}
	}
	if got := l.events("Service", "early", 1); got[0] != "Normal LoadBalancerIPsAssigned 192.0.2.0 of pool lan" {
		t.Errorf("events of a Service with an address: %q", got)
	}
	if text := l.describe(store.Services(), "default", "early"); !strings.Contains(text, "192.0.2.0") {
		t.Errorf("kubectl describe does not show the address: %s", text)
	}

	// When nothing has changed nothing is written.
	l.awaitEvents("early")
	l.writes()
	l.pass()
	if got := slices.DeleteFunc(l.writes(), func(w string) bool { return strings.Contains(w, "/events") }); len(got) != 0 {
		t.Errorf("writes where nothing has changed: %q", got)
	}

	// The pool is full, and addresses are freed.
	l.put("third", "", "")
	l.put("xfourth", "", "")
	l.pass()
	wants("third", "192.0.2.2 True Assigned 192.0.2.2 of pool lan")
	wants("xfourth", "False NoFreeAddress no pool for Services has a free IPv4 address: lan (add a region to the pool, or delete Services)")
	s.Do(http.MethodPatch, servicesURL+"/early", `{"spec":{"type":"ClusterIP"}}`)
	l.pass()
	wants("early", "")
	l.pass()
	wants("xfourth", "192.0.2.0 True Assigned 192.0.2.0 of pool lan")
	s.Do(http.MethodPatch, servicesURL+"/early", `{"spec":{"type":"LoadBalancer"}}`)
	s.Do(http.MethodDelete, servicesURL+"/third", nil)
	l.pass()
	wants("early", "192.0.2.2 True Assigned 192.0.2.2 of pool lan")

	// A deleted pool stays until its last Service is gone.
	s.Do(http.MethodDelete, pools+"/lan", nil)
	l.pass()
	wants("early", "192.0.2.2 True Assigned 192.0.2.2 of pool lan")
	for _, name := range []string{"early", "wanted", "annotated", "six", "xfourth"} {
		s.Do(http.MethodGet, pools+"/lan", nil)
		s.Do(http.MethodDelete, servicesURL+"/"+name, nil)
	}
	l.pass()
	if _, err := l.cfg.Objects.Get(t.Context(), store.AddressPools(), store.AddressPools().Key("", "lan")); err == nil {
		t.Error("the pool stays without a Service")
	}
}

// awaitEvents waits until an event that is recorded now is sent.
func (l load) awaitEvents(name string) {
	l.t.Helper()
	kind := store.Services()
	o, err := l.cfg.Objects.Get(l.t.Context(), kind, kind.Key("default", name))
	if err != nil {
		l.t.Fatal(err)
	}
	e := allocatableEvent(consistent(nil))
	if err := l.cfg.Events.EventOn(l.t.Context(), kind, o, e); err != nil {
		l.t.Fatal(err)
	}
	l.events("Service", name, 2)
}

// TestServicesKilled: controllers that are killed after each number of writes, and two at once, assign no address twice and
// leave none that no Service has.
func TestServicesKilled(t *testing.T) {
	nettest.EndToEnd(t)
	s, _ := kubernetes(t, nil)
	s.Do(http.MethodPost, pools, `{"apiVersion":"weft.dev/v1alpha1","kind":"AddressPool","metadata":{"name":"lan"},
		"spec":{"assignmentMode":"Automatic","allowedUses":["LoadBalancer"],"regions":[{"cidr":"192.0.2.0/28"}]}}`)
	const count = 16 // as many as there are addresses: one that is lost is missed
	l := load{&reported{t: t, Server: s}}
	for i := range count {
		l.put(fmt.Sprintf("s%02d", i), "", "")
	}
	one := func(end *lives) *Controller {
		k, err := kube.Open(kube.Config{
			Access: kube.Access{Kubeconfig: s.Kubeconfig(s.URL, ""), Getenv: os.Getenv}, Node: "n1", Agent: "weft-test",
			Log: slog.New(slog.DiscardHandler), Now: time.Now, After: time.After,
		})
		if err != nil {
			t.Fatal(err)
		}
		return New(Config{Objects: &mortal{Objects: k.Objects(), end: end}, Identity: "c", Now: time.Now, After: time.After})
	}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for writes := 1; writes < 6; writes++ {
				ctx, cancel := context.WithCancel(t.Context())
				_ = one(&lives{left: writes, cancel: cancel}).Pass(ctx)
				cancel()
			}
		})
	}
	wg.Wait()
	last := one(nil)
	for range 3 { // an address that two got at once is exchanged by the first pass
		if err := last.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]string{}
	for i := range count {
		name := fmt.Sprintf("s%02d", i)
		addr, more, _ := strings.Cut(l.has(name), " ")
		if seen[addr] != "" || !strings.HasPrefix(more, "True Assigned") {
			t.Errorf("Service %s has %s, as %q; %s", name, addr, seen[addr], more)
		}
		seen[addr] = name
	}
}

// lives are the writes that a controller does before it is killed.
type lives struct {
	left   int
	cancel context.CancelFunc
}

// mortal are objects whose program is killed after some writes.
type mortal struct {
	store.Objects
	end *lives
}

func (m *mortal) CompareAndSwapStatus(ctx context.Context, kind store.Kind, version string, next store.Object) (store.Object, error) {
	o, err := m.Objects.CompareAndSwapStatus(ctx, kind, version, next)
	if m.end != nil && kind == store.Services() {
		if m.end.left--; m.end.left == 0 {
			m.end.cancel()
		}
	}
	return o, err
}
