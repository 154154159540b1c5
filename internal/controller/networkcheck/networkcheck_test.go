// SPDX-License-Identifier: Apache-2.0

package networkcheck

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/apitest"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/kube"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

// network returns a NetworkAttachmentDefinition.
func network(t *testing.T, name, config string, made time.Time) store.Object {
	t.Helper()
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	o, err := store.NewObject(fmt.Appendf(nil, `{"apiVersion":"k8s.cni.cncf.io/v1","kind":"NetworkAttachmentDefinition",
		"metadata":{"name":%q,"namespace":"default","uid":"u","creationTimestamp":%q},"spec":{"config":%s}}`,
		name, made.UTC().Format(time.RFC3339), text))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

const valid = `{"type":"macvlan","master":"eth1","ipam":{"type":"host-local","subnet":"10.9.0.0/24"}}`

// TestExamine: the message names the field, its value and a hint.
func TestExamine(t *testing.T) {
	for name, c := range map[string]struct {
		config, reason string
		parts          []string
	}{
		"valid":         {valid, "NetworkAccepted", []string{"macvlan"}},
		"file":          {"", "NetworkAccepted", []string{"the file of the network file on each node"}},
		"vendor":        {`{"type":"sriov-of-a-vendor"}`, "NetworkAccepted", []string{"each node needs the programs sriov-of-a-vendor"}},
		"whereabouts":   {`{"type":"macvlan","master":"eth1","ipam":{"type":"whereabouts","range":"10.9.0.0/24"}}`, "NetworkAccepted", nil},
		"json":          {`{"type":"macvlan",`, "InvalidNetwork", []string{"spec.config: ", "JSON"}},
		"no-type":       {`{"master":"eth1"}`, "InvalidNetwork", []string{"type"}},
		"field":         {`{"type":"macvlan","master":"eth1","mode":"brigde"}`, "InvalidNetwork", []string{"plugins[0] macvlan", "mode", "brigde", "bridge, private"}},
		"addresses":     {strings.Replace(valid, "10.9.0.0/24", "10.9.0/24", 1), "InvalidNetwork", []string{"subnet", "10.9.0/24"}},
		"type":          {`{"type":"brigde"}`, "NetworkWarning", []string{`type "brigde"`, "did you mean bridge?"}},
		"macvtap":       {`{"type":"macvtap","mtu":1500}`, "NetworkAccepted", []string{"macvtap"}},
		"macvtap-key":   {`{"type":"macvtap","promisc":true}`, "NetworkWarning", []string{"promisc"}},
		"type-of-other": {`{"type":"ipvtap"}`, "NetworkWarning", []string{"install a program of that name on each node"}},
		"key":           {strings.Replace(valid, "master", "mastr", 1), "NetworkWarning", []string{"mastr", "master"}},
		"long":          {`{"type":"macvlan","mode":"` + strings.Repeat("ü", 2000) + `"}`, "InvalidNetwork", []string{"mode"}},
	} {
		e := Examine(network(t, name, c.config, time.Time{}))
		if e.Reason != c.reason || e.Warning != (c.reason != "NetworkAccepted") || len(e.Message) > maxMessage {
			t.Errorf("%s: %+v, want %s", name, e, c.reason)
		}
		for _, part := range c.parts {
			if !strings.Contains(e.Message, part) {
				t.Errorf("%s: %q lacks %q", name, e.Message, part)
			}
		}
	}
}

// written are the events that a checker wrote.
type written []string

func (w *written) StateEvent(_ store.Kind, o store.Object, e model.Event) {
	*w = append(*w, o.Key.Name+" "+e.Reason)
}

// TestReported: only the leader reports, also what it saw before it led; a controller that starts says nothing about old
// valid networks; findings are repeated until the network is mended or deleted.
func TestReported(t *testing.T) {
	var w written
	now, leads := time.Unix(1e9, 0), false
	c := New(Config{
		Events: &w, Leads: func() bool { return leads }, Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return now },
	})
	send := func(typ store.EventType, o store.Object) { c.handle(store.Event{Type: typ, Object: o}) }
	// wrote expects events since the last call.
	wrote := func(want ...string) {
		t.Helper()
		if got := fmt.Sprint([]string(w)); got != fmt.Sprint(want) {
			t.Errorf("wrote %s, want %s", got, fmt.Sprint(want))
		}
		w = nil
	}
	bad := `{"type":"macvlan","mode":"brigde"}`
	send(store.Added, network(t, "old", valid, now.Add(-2*recent)))
	send(store.Added, network(t, "bad", bad, now.Add(-2*recent)))
	send(store.Synced, store.Object{})
	c.repeat()
	wrote()
	leads = true
	c.repeat()
	wrote("bad InvalidNetwork")
	send(store.Added, network(t, "new", valid, now))
	wrote("new NetworkAccepted")
	send(store.Modified, network(t, "old", bad, now.Add(-2*recent)))
	wrote("old InvalidNetwork")
	send(store.Modified, network(t, "old", valid, now.Add(-2*recent)))
	wrote("old NetworkAccepted")
	c.repeat()
	wrote("bad InvalidNetwork")
	send(store.Deleted, network(t, "bad", bad, now))
	c.repeat()
	wrote()
}

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// TestServer: kubectl describe shows the events of a real API server; a network that is broken and mended has one event
// for each state, and another leader adds none.
func TestServer(t *testing.T) {
	nettest.EndToEnd(t)
	s := apitest.Start(t, nil, netip.MustParseAddr("127.0.0.1"))
	text, err := os.ReadFile("../../../deploy/nad-crd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s.DefineKind(text)
	lead := func() {
		t.Helper()
		k, err := kube.Open(kube.Config{
			Access: kube.Access{Kubeconfig: s.Kubeconfig(s.URL, ""), Getenv: os.Getenv}, Node: "n1", Agent: "weft-test",
			Component: "weft-controller", Log: slog.New(slog.DiscardHandler), Now: time.Now, After: time.After,
		})
		if err != nil {
			t.Fatal(err)
		}
		c := New(Config{
			Objects: k.Objects(), Events: k, Leads: func() bool { return true }, Log: slog.New(slog.DiscardHandler),
			Now: time.Now, After: time.After,
		})
		ctx, cancel := context.WithCancel(t.Context())
		var parts sync.WaitGroup
		parts.Go(func() { _ = k.Run(ctx) })
		parts.Go(func() { _ = c.Run(ctx) })
		t.Cleanup(func() {
			cancel()
			parts.Wait()
		})
	}
	lead()
	const networks = "/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions"
	write := func(method, path, name, config string) {
		t.Helper()
		b, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		s.Do(method, path, fmt.Sprintf(
			`{"apiVersion":"k8s.cni.cncf.io/v1","kind":"NetworkAttachmentDefinition","metadata":{"name":%q},"spec":{"config":%s}}`,
			name, b))
	}
	// awaitEvents waits until a network has these reasons in the order of their events.
	awaitEvents := func(name string, want ...string) {
		t.Helper()
		var head struct{ Metadata struct{ UID string } }
		if err := json.Unmarshal(s.Do(http.MethodGet, networks+"/"+name, nil), &head); err != nil {
			t.Fatal(err)
		}
		for until := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			var list struct {
				Items []struct {
					Reason         string
					Count          int
					InvolvedObject struct{ APIVersion, Kind, Name, UID, ResourceVersion string }
				}
			}
			if err := json.Unmarshal(s.Do(http.MethodGet, "/api/v1/namespaces/default/events?fieldSelector=involvedObject.uid="+
				head.Metadata.UID, nil), &list); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range list.Items {
				got = append(got, e.Reason)
				if o := e.InvolvedObject; o.APIVersion != "k8s.cni.cncf.io/v1" || o.Kind != "NetworkAttachmentDefinition" ||
					o.Name != name || o.ResourceVersion == "" || e.Count != 1 {
					t.Errorf("event %+v", e)
				}
			}
			slices.Sort(got)
			if slices.Equal(got, want) {
				return
			}
			if time.Now().After(until) {
				t.Fatalf("network %s has the events %q, want %q", name, got, want)
			}
		}
	}
	write(http.MethodPost, networks, "lan", valid)
	awaitEvents("lan", "NetworkAccepted")
	write(http.MethodPatch, networks+"/lan", "lan", `{"type":"macvlan","mode":"brigde"}`)
	awaitEvents("lan", "InvalidNetwork", "NetworkAccepted")
	write(http.MethodPatch, networks+"/lan", "lan", valid)
	awaitEvents("lan", "InvalidNetwork", "NetworkAccepted", "NetworkAccepted")
	lead()
	write(http.MethodPost, networks, "last", `{"type":"brigde"}`)
	awaitEvents("last", "NetworkWarning")
	awaitEvents("lan", "InvalidNetwork", "NetworkAccepted", "NetworkAccepted")
}
