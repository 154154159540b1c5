// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/apitest"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/kube"
	"github.com/weft-net/weft/internal/nettest"
)

// reported is a controller with events on a real API server, behind a proxy that counts what it writes.
type reported struct {
	t *testing.T
	*apitest.Server
	proxy *apitest.Proxy
	*Controller
	now time.Time
}

func newReported(t *testing.T, s *apitest.Server) *reported {
	t.Helper()
	r := &reported{t: t, Server: s, proxy: s.Proxy(), now: time.Now()}
	k, err := kube.Open(kube.Config{
		Access: kube.Access{Kubeconfig: s.Kubeconfig(r.proxy.URL, ""), Getenv: os.Getenv}, Node: "n1", Agent: "weft-test",
		Component: "weft-controller", Log: slog.New(slog.DiscardHandler), Now: time.Now, After: time.After,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	r.Controller = New(Config{
		Objects: k.Objects(), Events: k, Identity: "c", Now: func() time.Time { return r.now }, After: time.After,
	})
	return r
}

// audit does a pass with an audit.
func (r *reported) audit() {
	r.t.Helper()
	r.now = r.now.Add(auditInterval)
	if err := r.Pass(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// writes returns the requests that changed something since the last call.
func (r *reported) writes() (out []string) {
	for _, one := range r.proxy.Seen() {
		if one.Method != http.MethodGet {
			out = append(out, fmt.Sprintf("%s %s %d", one.Method, one.Path, one.Code))
		}
	}
	r.proxy.Reset()
	return out
}

// event is an Event of the API.
type event struct {
	Type, Reason, Message string
	Count                 int
	InvolvedObject        struct{ Kind, Name, UID string }
	Source                struct{ Component string }
}

// events waits until an object has n events, and returns them as texts.
func (r *reported) events(kind, name string, n int) []string {
	r.t.Helper()
	var out []string
	for until := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		var list struct{ Items []event }
		if err := json.Unmarshal(r.Do(http.MethodGet, "/api/v1/events", nil), &list); err != nil {
			r.t.Fatal(err)
		}
		out = nil
		for _, e := range list.Items {
			if e.InvolvedObject.Kind != kind || e.InvolvedObject.Name != name {
				continue
			}
			if e.InvolvedObject.UID == "" || e.Source.Component != "weft-controller" || e.Count != 1 {
				r.t.Errorf("event of %s %s: %+v", kind, name, e)
			}
			out = append(out, e.Type+" "+e.Reason+" "+e.Message)
		}
		slices.Sort(out)
		if len(out) >= n {
			return out
		}
		if time.Now().After(until) {
			r.t.Fatalf("%s %s has the events %q, want %d", kind, name, out, n)
		}
	}
}

// condition returns a condition of an object as the server has it.
func (r *reported) condition(kind store.Kind, namespace, name, of string) (text, since string) {
	r.t.Helper()
	o, err := r.cfg.Objects.Get(r.t.Context(), kind, kind.Key(namespace, name))
	if err != nil {
		r.t.Fatal(err)
	}
	var s struct {
		Metadata struct{ Generation int64 }
		Status   struct {
			Conditions []struct {
				Type, Status, Reason, Message, LastTransitionTime string
				ObservedGeneration                                int64
			}
		}
	}
	if err := json.Unmarshal(o.Raw, &s); err != nil {
		r.t.Fatal(err)
	}
	for _, c := range s.Status.Conditions {
		if c.Type == of {
			if c.ObservedGeneration != s.Metadata.Generation {
				r.t.Errorf("%s: %s is of generation %d, the object of %d", o.Key, of, c.ObservedGeneration, s.Metadata.Generation)
			}
			return c.Status + " " + c.Reason + " " + c.Message, c.LastTransitionTime
		}
	}
	return "", ""
}

const (
	blocksURL = "/apis/weft.dev/v1alpha1/addressblocks"
	claimsURL = "/apis/weft.dev/v1alpha1/namespaces/default/addressclaims"
)

// TestReports: a pool that is full or overlaps, blocks in conflict and of a deleted node, and claims with the same
// address get conditions and one event each, which kubectl describe shows; when nothing has changed nothing is written.
func TestReports(t *testing.T) {
	nettest.EndToEnd(t)
	s, _ := kubernetes(t, nil)
	r := newReported(t, s)
	s.Do(http.MethodPost, "/api/v1/nodes", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"}}`)
	post := func(path, kind, name, spec string) {
		t.Helper()
		s.Do(http.MethodPost, path, fmt.Sprintf(
			`{"apiVersion":"weft.dev/v1alpha1","kind":%q,"metadata":{"name":%q},"spec":%s}`, kind, name, spec))
	}
	post(pools, "AddressPool", "ours", `{"assignmentMode":"Automatic","regions":[{"cidr":"10.0.0.0/24","blockSize":28}]}`)
	post(blocksURL, "AddressBlock", "ours-10-0-0-0-28", `{"pool":"ours","cidr":"10.0.0.0/28","node":"n1","claim":"1"}`)
	post(claimsURL, "AddressClaim", "one", `{}`)
	r.audit()
	if got := r.writes(); len(got) != 4 { // the pool's finalizer, Allocatable, Exhausted, Consistent
		t.Errorf("writes of a good pool: %q", got)
	}
	r.audit()
	if got := r.writes(); len(got) != 0 {
		t.Errorf("writes where nothing has changed: %q", got)
	}
	_, since := r.condition(store.AddressPools(), "", "ours", ConditionConsistent)

	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // so that creation times differ
	post(pools, "AddressPool", "second", `{"assignmentMode":"Automatic","regions":[{"cidr":"10.0.0.128/25","blockSize":28}]}`)
	post(blocksURL, "AddressBlock", "ours-10-0-0-16-28", `{"pool":"ours","cidr":"10.0.0.16/28","node":"gone","claim":"2"}`)
	post(claimsURL, "AddressClaim", "two", `{}`)
	for _, name := range []string{"one", "two"} {
		s.Do(http.MethodPatch, claimsURL+"/"+name+"/status", `{"status":{"addresses":["10.0.0.9"],"node":"n1"}}`)
	}
	s.Do(http.MethodPatch, pools+"/ours/status", `{"status":{"wanted":["n1"]}}`)
	post("/apis/weft.dev/v1alpha1/addressreservations", "AddressReservation", "printers", `{"addresses":["10.9.0.0/24"]}`)
	for range 2 { // the second one changes nothing
		r.audit()
	}
	for _, want := range []struct {
		kind            store.Kind
		namespace, name string
		condition       string // the first words
		event           string
	}{
		{
			store.AddressPools(), "", "second", "Allocatable False CIDROverlap",
			"Warning PoolNotAllocatable CIDROverlap: region 10.0.0.128/25 overlaps with region 10.0.0.0/24 of pool ours",
		},
		{
			store.AddressPools(), "", "ours", "Exhausted True NoFreeAddress no free address on n1",
			"Warning PoolExhausted no free address on n1: add a region",
		},
		{
			store.AddressBlocks(), "", "ours-10-0-0-16-28", "Consistent False OwnerGone",
			`Warning Inconsistent OwnerGone: AddressBlock ours-10-0-0-16-28: block 10.0.0.16/28 belongs to node "gone"`,
		},
		{
			store.AddressClaims(), "default", "two", "Consistent False Conflict",
			"Warning Inconsistent Conflict: AddressClaim default/two: address 10.0.0.9 is also in AddressClaim default/one",
		},
		{
			store.AddressReservations(), "", "printers", "",
			"Warning Inconsistent NoPool: AddressReservation printers: 10.9.0.0/24 is in no pool",
		},
	} {
		of, words, _ := strings.Cut(want.condition, " ")
		if of != "" {
			if got, _ := r.condition(want.kind, want.namespace, want.name, of); !strings.HasPrefix(got, words) {
				t.Errorf("%s %s: condition %s is %q, want %q", want.kind.Kind, want.name, of, got, words)
			}
		}
		events := r.events(want.kind.Kind, want.name, 1)
		if !slices.ContainsFunc(events, func(e string) bool { return strings.HasPrefix(e, want.event) }) {
			t.Errorf("%s %s has the events %q, want %q", want.kind.Kind, want.name, events, want.event)
		}
		if text := r.describe(want.kind, want.namespace, want.name); !strings.Contains(text, "weft-controller") {
			t.Errorf("kubectl describe does not show the event: %s", text)
		}
	}
	if _, later := r.condition(store.AddressPools(), "", "ours", ConditionConsistent); since == "" || later == since {
		t.Errorf("Consistent of the pool is since %q, and was since %q", later, since)
	}
	r.writes()

	// Another leader finds the same, and writes nothing but what the server refuses as a repetition.
	other := newReported(t, s)
	other.now = r.now
	other.audit()
	other.awaitIdle()
	all := other.writes()
	for _, w := range all[:len(all)-1] { // the last one is of awaitIdle
		if !strings.HasSuffix(w, " 409") {
			t.Errorf("another leader writes %s", w)
		}
	}

	s.Do(http.MethodDelete, blocksURL+"/ours-10-0-0-16-28", nil)
	s.Do(http.MethodDelete, claimsURL+"/one", nil)
	s.Do(http.MethodPatch, pools+"/ours/status", `{"status":{"wanted":null}}`)
	r.audit()
	if got, _ := r.condition(store.AddressClaims(), "default", "two", ConditionConsistent); !strings.HasPrefix(got, "True NoFindings") {
		t.Errorf("the claim that is left is %q", got)
	}
	if got := r.events("AddressClaim", "two", 2); !strings.HasPrefix(got[0], "Normal Consistent") {
		t.Errorf("the claim that is left has the events %q", got)
	}
	if got, _ := r.condition(store.AddressPools(), "", "ours", ConditionExhausted); !strings.HasPrefix(got, "False AddressesAvailable") {
		t.Errorf("the pool with free addresses is %q", got)
	}
}

// awaitIdle waits until the events that were recorded before are sent: they are sent in order.
func (r *reported) awaitIdle() {
	r.t.Helper()
	kind := store.AddressPools()
	o, err := r.cfg.Objects.Get(r.t.Context(), kind, kind.Key("", "second"))
	if err != nil {
		r.t.Fatal(err)
	}
	e := allocatableEvent(consistent(nil))
	e.Message = "the last event of this program"
	if err := r.cfg.Events.EventOn(r.t.Context(), kind, o, e); err != nil {
		r.t.Fatal(err)
	}
	for until := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		seen := r.proxy.Seen()
		if n := len(seen); n > 0 && seen[n-1].Method == http.MethodPost && seen[n-1].Code == http.StatusCreated {
			return
		}
		if time.Now().After(until) {
			r.t.Fatalf("events are not sent: %+v", seen)
		}
	}
}

// describe is the output of kubectl describe.
func (r *reported) describe(kind store.Kind, namespace, name string) string {
	r.t.Helper()
	home, err := os.UserHomeDir()
	if err != nil {
		r.t.Fatal(err)
	}
	program := filepath.Join(home, ".cache/weft/kube-v1.36.3/bin/kubectl")
	if dir := os.Getenv("WEFT_KUBE_BIN_DIR"); dir != "" {
		program = filepath.Join(dir, "kubectl")
	}
	args := []string{"--kubeconfig", r.Kubeconfig(r.URL, ""), "describe", kind.Resource, name}
	if namespace != "" {
		args = append(args, "-n", namespace)
	}
	cmd := exec.CommandContext(r.t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "HOME="+r.t.TempDir()) // its cache
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("kubectl describe: %v %s", err, out)
	}
	return string(out)
}
