// SPDX-License-Identifier: Apache-2.0

package mesh_test

import (
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/state"
)

const (
	keyA = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	keyB = "BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBA="
	keyC = "CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCA="
)

// says returns the node with published data.
func says(n model.Node, backend, data, dataV6 string) model.Node {
	n.Published = &model.Published{Backend: backend, Data: data, DataV6: dataV6}
	return n
}

func three() (a, b, c model.Node) {
	return node("a", "192.168.0.1", "fd00::1", "10.244.1.0/24", "fd00:244:1::/64"),
		node("b", "192.168.0.2", "fd00::2", "10.244.2.0/24", "fd00:244:2::/64"),
		node("c", "192.168.9.3", "fd00::3", "10.244.3.0/24", "fd00:244:3::/64")
}

// learned returns the runtime data of backend wireguard.
func learned(userSpace bool) map[string]string {
	b, _ := json.Marshal(mesh.WireGuardLearned{PublicKey: keyA, UserSpace: userSpace})
	return map[string]string{"wireguard": string(b)}
}

func TestTunnelsGolden(t *testing.T) {
	a, b, c := three()
	links := []string{"eth0 192.168.0.1/24", "eth1 fd00::1/64"}
	wb := says(b, "wireguard", `{"PublicKey":"`+keyB+`","Port":51820}`, `{"PublicKey":"`+keyB+`","Port":51821}`)
	wc := says(c, "wireguard", `{"PublicKey":"`+keyC+`","Port":7}`, `{"PublicKey":"`+keyC+`"}`)
	for _, g := range []struct {
		name  string
		nodes []model.Node
		how   mesh.Config
	}{
		{"udp", []model.Node{a, b, c}, mesh.Config{Backend: "udp", UDP: mesh.UDP{Port: 9999}}},
		{"ipip", []model.Node{a, b, c}, mesh.Config{Backend: "ipip"}},
		{"ipip-direct", []model.Node{a, b, c}, mesh.Config{Backend: "ipip", IPIP: mesh.IPIP{DirectRouting: true}}},
		{
			"wireguard", []model.Node{
				a, wb, wc,
			}, mesh.Config{Backend: "wireguard", Learned: learned(false), WireGuard: mesh.WireGuard{PSKFile: "/run/psk"}},
		},
		{"wireguard-auto", []model.Node{
			a, wb, wc,
		}, mesh.Config{Backend: "wireguard", Learned: learned(true), WireGuard: mesh.WireGuard{
			Mode: mesh.ModeAuto, ListenPort: 6, MTU: 1400, KeyFile: "/run/key", PersistentKeepaliveInterval: 25,
		}}},
		{"alloc", []model.Node{a, b}, mesh.Config{Backend: "alloc"}},
		{"extension", []model.Node{a, says(b, "extension", `"b was here"`, ""), c}, mesh.Config{
			Backend: "extension", Learned: map[string]string{"extension": "a was here"}, Extension: mesh.Extension{
				PreStartupCommand: "/bin/pre", PostStartupCommand: "/bin/post $SUBNET", SubnetAddCommand: "/bin/add",
				SubnetRemoveCommand: "/bin/remove",
				Network:             netip.MustParsePrefix("10.244.0.0/16"),
			},
		}},
		{
			"mixed", []model.Node{
				a, says(b, "vxlan", `{"VNI":1,"VtepMAC":"02:00:00:00:00:02"}`, ""), says(c, "udp", "", ""),
				says(node("d", "192.168.0.4", "10.244.4.0/24"), "host-gw", "null", ""),
			}, mesh.Config{Backend: "udp"},
		},
	} {
		t.Run(g.name, func(t *testing.T) {
			topo := planAs(t, g.how, &model.Cluster{Self: "a", Nodes: g.nodes}, links...)
			js, err := json.MarshalIndent(topo, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "tunnel-"+g.name+".txt", topo.Text())
			golden(t, "tunnel-"+g.name+".json", string(js)+"\n")
		})
	}
}

// Peers' data is untrusted: an invalid one is a problem, and only that peer is not reached.
func TestWireguardProblems(t *testing.T) {
	a, b, c := three()
	good := says(c, "wireguard", `{"PublicKey":"`+keyC+`","Port":7}`, `{"PublicKey":"`+keyC+`","Port":7}`)
	for _, g := range []struct{ data, want string }{
		{``, "node b publishes no WireGuard key for IPv4"},
		{`null`, "node b publishes no WireGuard key for IPv4"},
		{`[]`, "node b publishes for wireguard []: not such an object"},
		{`{"PublicKey":"abc"}`, `node b publishes for wireguard {"PublicKey":"abc"}: PublicKey is not 32 bytes in base64`},
		{`{"PublicKey":"` + keyA + `"}`, "nodes a and b have the same WireGuard key"},
	} {
		bad := says(b, "wireguard", g.data, `{"PublicKey":"`+keyB+`"}`)
		topo := planAs(t, mesh.Config{Backend: "wireguard", Learned: learned(true)},
			&model.Cluster{Self: "a", Nodes: []model.Node{a, bad, good}}, "eth0 192.168.0.1/24", "eth1 fd00::1/64")
		if len(topo.Problems) != 1 || topo.Problems[0].Message != g.want || topo.Problems[0].Hint == "" {
			t.Errorf("%s: problems %v, want %q", g.data, topo.Problems, g.want)
		}
		if n := len(topo.Tunnels[0].Peers); n != 1 {
			t.Errorf("%s: %d IPv4 peers are left, want 1", g.data, n)
		}
		if !slices.ContainsFunc(topo.Peers[0].Fragment().Host.Routes, func(r state.Route) bool {
			return r.Dst == b.PodCIDRs[0] && r.Type == 7
		}) {
			t.Errorf("%s: packets to b are not refused: %v", g.data, topo.Peers[0].Fragment().Host.Routes)
		}
	}
	topo := planAs(t, mesh.Config{}, &model.Cluster{Self: "a", Nodes: []model.Node{a, good}}, "eth0 192.168.0.1/24",
		"eth1 fd00::1/64")
	if len(topo.Problems) != 1 ||
		!strings.Contains(topo.Problems[0].Message, "node c uses wireguard, which this node does not use") {
		t.Errorf("a peer of another backend: %v", topo.Problems)
	}
}

// Two other nodes with one key are both not reached: the device has one peer for a key.
func TestWireguardClone(t *testing.T) {
	a, b, c := three()
	twice := func(n model.Node) model.Node {
		return says(n, "wireguard", `{"PublicKey":"`+keyB+`","Port":7}`, `{"PublicKey":"`+keyB+`","Port":7}`)
	}
	d := says(node("d", "192.168.0.4", "10.244.4.0/24"), "wireguard", `{"PublicKey":"`+keyC+`","Port":7}`, "")
	topo := planAs(t, mesh.Config{
		Backend: "wireguard", Learned: learned(true), WireGuard: mesh.WireGuard{KeyFile: "/run/key", Mode: mesh.ModeSeparate},
	}, &model.Cluster{Self: "a", Nodes: []model.Node{a, twice(b), twice(c), d}}, "eth0 192.168.0.1/24", "eth1 fd00::1/64")
	if len(topo.Problems) != 1 || topo.Problems[0].Message != "nodes b and c have the same WireGuard key" ||
		!slices.Equal(topo.Problems[0].Nodes, []string{"b", "c"}) || !strings.Contains(topo.Problems[0].Hint, "/run/key") {
		t.Errorf("problems %v", topo.Problems)
	}
	for _, tunnel := range topo.Tunnels {
		for _, p := range tunnel.Peers {
			if p.Node != "d" {
				t.Errorf("%s has the peer %s", tunnel.Link, p.Node)
			}
		}
	}
	for _, p := range topo.Peers {
		for _, r := range p.Fragment().Host.Routes {
			if p.Name != "d" && r.Type != 7 {
				t.Errorf("route to %s: %s", p.Name, r)
			}
		}
	}
}

func TestTunnelConfigRefused(t *testing.T) {
	a, b, _ := three()
	for _, g := range []struct {
		how  mesh.Config
		want string
	}{
		{mesh.Config{WireGuard: mesh.WireGuard{Mode: "both"}}, `wireguard: Mode "both" is not known`},
		{
			mesh.Config{WireGuard: mesh.WireGuard{PersistentKeepaliveInterval: -1}},
			"wireguard: PersistentKeepaliveInterval -1 is not between 0 and 65535",
		},
		{mesh.Config{WireGuard: mesh.WireGuard{MTU: 100}}, "wireguard: MTU 100 is not between 576 and 65535"},
		{mesh.Config{WireGuard: mesh.WireGuard{ListenPort: 51821}}, "wireguard: ListenPort and ListenPortV6 are both 51821"},
	} {
		g.how.Backend = "wireguard"
		_, err := mesh.Plan(&model.Cluster{Self: "a", Nodes: []model.Node{a, b}}, g.how, nil)
		var fault *model.Error
		if !errors.As(err, &fault) || fault.Msg != g.want || fault.Hint == "" {
			t.Errorf("%+v: %v, want %q", g.how.WireGuard, err, g.want)
		}
	}
}
