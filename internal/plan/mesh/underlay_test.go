// SPDX-License-Identifier: Apache-2.0

package mesh_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/state"
)

// The underlay's link is chosen by its name.
func TestInterface(t *testing.T) {
	far := node("b", "192.168.0.2", "10.244.2.0/24")
	far.Published = &model.Published{Backend: "host-gw", Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.2")}}
	c := &model.Cluster{Self: "a", Nodes: []model.Node{node("a", "192.168.0.1", "10.244.1.0/24"), far}}
	link := func(addrs ...string) state.Answer {
		a := state.Answer{Found: true, Link: state.Link{Name: "eth1", MTU: 9000}}
		for _, addr := range addrs {
			a.Addrs = append(a.Addrs, state.Addr{Link: "eth1", Prefix: netip.MustParsePrefix(addr)})
		}
		return a
	}
	for _, f := range []struct {
		name   string
		answer state.Answer
		want   string
	}{
		{
			"by name", link("fe80::1/64", "fd00::1/64", "10.0.0.1/24"),
			"[{eth1 10.0.0.1 [10.0.0.0/24] 9000}] [] [10.0.0.1] [route 10.244.2.0/24 via 10.0.0.2 dev eth1] []",
		},
		{
			"no such link",
			state.Answer{},
			"[] [4] [] [] [node a: there is no link eth1 (choose a link that `ip -br addr` shows, or auto) " +
				"node a has no IPv4 underlay, so no peer's IPv4 pods are reached (give node a an InternalIP of that family that one of its links holds)]",
		},
		{
			"no address", link("fd00::1/64"),
			"[] [4] [] [] [node a: the link eth1 has no IPv4 address (give it one, or choose a link that `ip -br addr` shows with one, or auto) " +
				"node a has no IPv4 underlay, so no peer's IPv4 pods are reached (give node a an InternalIP of that family that one of its links holds)]",
		},
	} {
		t.Run(f.name, func(t *testing.T) {
			cfg := mesh.Config{Interface: "eth1"}
			answers := state.Answers{}
			for _, q := range mesh.Observe(c, cfg) {
				if q.Link == "eth1" {
					answers[q] = f.answer
				}
			}
			topo, err := mesh.Plan(c, cfg, answers)
			if err != nil {
				t.Fatal(err)
			}
			var routes []string
			for _, r := range topo.Peers[0].Fragment().Host.Routes {
				r.Metric, r.Protocol = 0, 0
				routes = append(routes, r.String())
			}
			if got := fmt.Sprint(topo.Underlay, topo.LostFamilies, topo.Publish.Addrs, routes, topo.Problems); got != f.want {
				t.Errorf("got  %s\nwant %s", got, f.want)
			}
		})
	}
}
