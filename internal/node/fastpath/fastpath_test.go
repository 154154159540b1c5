// SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/state"
)

// record is the record of a routed pod.
func record(name string) attach.Record {
	pod := 0
	return attach.Record{
		Stage: attach.Done,
		Request: model.Request{
			ContainerID: name, IfName: "eth0", Network: "weft",
			Args: [][2]string{{"K8S_POD_NAMESPACE", "shop"}, {"K8S_POD_NAME", name}},
		},
		Acts: []attach.Act{{Kind: attach.ActApply, Fragment: &state.Fragment{Host: state.Space{Links: []state.Link{{
			Name: "cali" + name, Kind: state.Veth, Peer: &state.Peer{Space: state.Pod, Name: "eth0"},
		}}}}}},
		Result: &model.Result{
			Interfaces: []model.Interface{{Name: "eth0", Sandbox: "/run/netns/" + name}},
			IPs:        []model.IP{{Interface: &pod, Address: netip.MustParsePrefix("10.0.0.1/32")}},
		},
	}
}

// Links are those of routed pods whose packets nothing counts or limits.
func TestPods(t *testing.T) {
	for name, change := range map[string]func(*attach.Record){
		"routed":      func(*attach.Record) {},
		"pending":     func(r *attach.Record) { r.Stage = attach.Pending },
		"standby":     func(r *attach.Record) { r.Standby = true },
		"port":        func(r *attach.Record) { r.Acts[0].Fragment.Host.Links[0].Master = "cni0" },
		"no pod":      func(r *attach.Record) { r.Request.Args = nil },
		"unaddressed": func(r *attach.Record) { r.Result = nil },
		"tap": func(r *attach.Record) {
			l := &r.Acts[0].Fragment.Host.Links[0]
			l.Kind, l.Peer, l.Alias = state.Tap, nil, "weft:a"
			r.Acts[0].Fragment.Pod.Links = []state.Link{{Name: "eth0", Alias: "weft:a"}}
		},
		"packets are limited": func(r *attach.Record) {
			r.Acts[0].Fragment.Host.Tables = []state.Table{{Family: "inet", Name: "weft_qos", Sets: []state.Set{{
				Name: "packets_in", Elements: []state.Element{{Key: []string{"x"}, Stateful: "limit rate over 5/second"}},
			}}}}
		},
		"in a set": func(r *attach.Record) {
			r.Acts[0].Fragment.Host.Tables = []state.Table{{Family: "inet", Name: "weft_source", Sets: []state.Set{{
				Name: "links", Elements: []state.Element{{Key: []string{"x"}}},
			}}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := record("a")
			change(&r)
			got, want := pods([]attach.Record{r}), 0
			if name == "routed" || name == "in a set" {
				want = 1
			}
			if len(got) != want || want == 1 && (got[0].Name != "calia" || len(got[0].Addrs) != 1) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// Uplinks are links with Ethernet headers: the underlay, and devices of VXLANs.
func TestUplinks(t *testing.T) {
	peer := func(links ...string) *mesh.Peer {
		p := &mesh.Peer{Name: "p"}
		var s state.Space
		for _, l := range links {
			s.Routes = append(s.Routes, state.Route{Link: l})
		}
		p.SetHost(s, nil)
		return p
	}
	got := uplinks(mesh.Topology{
		Underlay: []mesh.Underlay{{Link: "eth0"}, {Link: "eth1"}},
		Node:     state.Fragment{Host: state.Space{Links: []state.Link{{Name: "flannel.1", VXLAN: &state.VXLANAttrs{}}, {Name: "flannel-wg"}}}},
		Peers:    []*mesh.Peer{peer("flannel.1"), peer("eth0", "flannel-wg"), peer("eth0")},
	})
	if want := []string{"eth0", "flannel.1"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
