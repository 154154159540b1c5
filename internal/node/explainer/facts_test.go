// SPDX-License-Identifier: Apache-2.0

package explainer

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"testing"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/explain"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/state"
)

// The node's ports that lead to a pod are those of the attachment's capability portMappings.
func TestHostPorts(t *testing.T) {
	mapped := `{"type": "portmap", "runtimeConfig": {"portMappings": [
		{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
		{"hostPort": 53, "containerPort": 5353, "protocol": "udp", "hostIP": "192.0.2.1"}]}}`
	got := hostPorts(model.Network{Plugins: []model.PluginConf{
		{Type: "bridge", Raw: json.RawMessage(`{"type": "bridge"}`)}, {Type: "portmap", Raw: json.RawMessage(mapped)},
	}})
	want := []explain.HostPort{
		{Protocol: model.TCP, Port: 8080, To: 80},
		{Protocol: model.UDP, Port: 53, To: 5353, Addr: netip.MustParseAddr("192.0.2.1")},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// How a guest is connected is known by the record of the VM in its pod, or by the join that the attachment itself made.
func TestGuests(t *testing.T) {
	direct := attach.Record{
		Request: model.Request{ContainerID: "c1"},
		Acts:    []attach.Act{{Fragment: &state.Fragment{Pod: state.Space{Joins: []state.Join{{Tap: "tap1", Link: "net1"}}}}}},
	}
	lease := netip.MustParsePrefix("10.0.2.2/24")
	vm := attach.Record{VM: &attach.VM{Container: "c2"}, Acts: []attach.Act{
		{},
		{
			Interface: &attach.VMInterface{
				VMInterface: model.VMInterface{Binding: model.VMMasquerade}, PodLink: "eth0", Device: model.VMDevice{Target: "tap0"},
			},
			Guests: []model.GuestConfig{{Link: "k6t-eth0", DHCP4: &model.GuestDHCP4{Address: lease}}},
		},
		{
			Interface: &attach.VMInterface{
				VMInterface: model.VMInterface{Binding: model.VMDirect}, PodLink: "net2", Device: model.VMDevice{Target: "tap2"},
			},
			Fragment: &state.Fragment{Pod: state.Space{Joins: []state.Join{{Tap: "tap2", Link: "net2"}}}},
			Guests:   []model.GuestConfig{{Link: "tap2", DHCP4: &model.GuestDHCP4{Address: lease}}},
		},
		{Interface: &attach.VMInterface{PodLink: "net1", Device: model.VMDevice{Target: "macvtap0", OnNode: true}}},
	}}
	got := guestsOf([]attach.Record{direct, vm})
	if g := got[podLink{"c1", "net1"}]; g.tap != "tap1" || g.join == nil {
		t.Errorf("made by the attachment: %+v", g)
	}
	if g := got[podLink{"c2", "eth0"}]; g.tap != "tap0" || g.join != nil || g.leaseLink != "k6t-eth0" ||
		!slices.Equal(g.leases, []netip.Addr{lease.Addr()}) {
		t.Errorf("behind NAT: %+v", g)
	}
	if g := got[podLink{"c2", "net2"}]; g.tap != "tap2" || g.join == nil || g.leases != nil {
		t.Errorf("joined by the VM: %+v", g)
	}
	if g := got[podLink{"c2", "net1"}]; g.tap != "macvtap0" || !g.onNode {
		t.Errorf("on the node: %+v", g)
	}
	if len(got) != 4 {
		t.Errorf("%+v", got)
	}
}

// A summary is asked for by a parameter.
func TestFactsRoute(t *testing.T) {
	e := New(Config{Node: "node1", Records: noRecords{}, Topology: func() (mesh.Topology, error) {
		return mesh.Topology{Self: "node1", Peers: []*mesh.Peer{{Name: "node2"}}}, nil
	}})
	for query, peers := range map[string]int{"": 1, "?" + QuerySummary + "=true": 0} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, RouteFacts+query, nil)
		v, err := e.Routes()["GET "+RouteFacts](r)
		if n, ok := v.(explain.Node); err != nil || !ok || len(n.Peers) != peers || (n.Links != nil) != (peers == 0) {
			t.Errorf("%q: %+v, %v", query, v, err)
		}
	}
}

// A network that is removed from a pod which stays, or the pod of that name before it, says nothing about the pod.
func TestReleasing(t *testing.T) {
	record := func(container, name, addr string, stage attach.Stage) attach.Record {
		return attach.Record{
			Stage: stage,
			Request: model.Request{
				ContainerID: container, IfName: "eth0", Args: [][2]string{{"K8S_POD_NAMESPACE", "shop"}, {"K8S_POD_NAME", name}},
			},
			Result: &model.Result{
				Interfaces: []model.Interface{{Name: "eth0", Sandbox: "/run/netns/" + name}},
				IPs:        []model.IP{{Interface: new(int), Address: netip.MustParsePrefix(addr)}},
			},
		}
	}
	e := New(Config{Node: "node1", Records: someRecords{
		record("c1", "web", "10.42.0.1/32", attach.Releasing), record("c2", "web", "10.42.0.2/32", attach.Done),
		record("c3", "web", "10.42.0.3/32", attach.Releasing), record("c4", "db", "10.42.0.4/32", attach.Releasing),
	}})
	facts, err := e.Facts(t.Context())
	if err != nil || len(facts.Pods) != 2 {
		t.Fatal(facts.Pods, err)
	}
	web, db := facts.Pods[0], facts.Pods[1]
	if web.Stage != "done" || len(web.Interfaces) != 1 || web.Interfaces[0].Addrs[0].Addr().String() != "10.42.0.2" {
		t.Errorf("%+v", web)
	}
	if db.Stage != "releasing" || len(db.Interfaces) != 1 {
		t.Errorf("%+v", db)
	}
}

type noRecords struct{}

func (noRecords) List() ([]attach.Record, error) { return nil, nil }

type someRecords []attach.Record

func (s someRecords) List() ([]attach.Record, error) { return s, nil }
