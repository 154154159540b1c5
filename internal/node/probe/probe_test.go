// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/probe"
	"github.com/weft-net/weft/internal/node/reconcile"
	"github.com/weft-net/weft/internal/plan/mesh"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// pair is two nodes whose mesh the reconciler has set up, as in an agent.
type pair struct {
	t     *testing.T
	nodes [2]*netns.NS
	topo  [2]mesh.Topology
}

func join(t *testing.T, backend string, spoiled bool) *pair {
	t.Helper()
	p := &pair{t: t, nodes: [2]*netns.NS{nettest.NS(t, "a"), nettest.NS(t, "b")}}
	if spoiled {
		nettest.NoChecksumWire(t, p.nodes[0], p.nodes[1])
	} else {
		p.ip(0, "link add eth0 type veth peer name eth0 netns "+p.nodes[1].Path())
	}
	for i := range p.nodes {
		p.ip(i, "link set lo up", "link set eth0 up", fmt.Sprintf("addr add 192.168.0.%d/24 dev eth0", i+1),
			fmt.Sprintf("addr add fd00::%d/64 dev eth0 nodad", i+1))
	}
	for i := range p.nodes {
		p.neighbor(i)
		p.topo[i] = p.reconcile(i, backend)
	}
	return p
}

// neighbor makes the other node's entry a permanent one: the neighbor table is shared by all namespaces of the host,
// and other tests may fill it.
func (p *pair) neighbor(i int) {
	p.t.Helper()
	mac, fields := "", strings.Fields(nettest.Run(p.t, p.nodes[1-i], "ip", "-o", "link", "show", "eth0"))
	for j, f := range fields {
		if f == "link/ether" {
			mac = fields[j+1]
		}
	}
	for _, to := range []string{"192.168.0.%d", "fd00::%d"} {
		p.ip(i, "neigh replace "+fmt.Sprintf(to, 2-i)+" lladdr "+mac+" dev eth0 nud permanent")
	}
}

func (p *pair) ip(i int, commands ...string) {
	p.t.Helper()
	for _, c := range commands {
		nettest.IP(p.t, p.nodes[i], c)
	}
}

func (p *pair) reconcile(i int, backend string) mesh.Topology {
	p.t.Helper()
	conn, err := kernel.Dial(p.nodes[i])
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	c := &model.Cluster{Self: string(rune('a' + i))}
	for j := range p.nodes {
		c.Nodes = append(c.Nodes, model.Node{
			Name: string(rune('a' + j)),
			Addrs: []netip.Addr{
				netip.MustParseAddr(fmt.Sprintf("192.168.0.%d", j+1)), netip.MustParseAddr(fmt.Sprintf("fd00::%d", j+1)),
			},
			PodCIDRs: []netip.Prefix{
				netip.MustParsePrefix(fmt.Sprintf("10.244.%d.0/24", j+1)),
				netip.MustParsePrefix(fmt.Sprintf("fd00:244:%d::/64", j+1)),
			},
		})
	}
	r := reconcile.New(reconcile.Config{
		Host: conn, NS: p.nodes[i], Mesh: mesh.Config{Backend: backend}, Log: slog.New(slog.DiscardHandler), Now: time.Now,
		After: time.After,
	})
	status, err := r.Once(p.t.Context(), c)
	if err != nil {
		p.t.Fatal(err)
	}
	return status.Topology
}

// ask probes from the first node.
func (p *pair) ask() []probe.Result {
	p.t.Helper()
	var targets []probe.Target
	t := p.topo[0]
	for _, r := range t.PeerPaths(t.Peers[0]) {
		targets = append(targets, probe.Target{
			Name: "b", Backend: t.Peers[0].Backend, Underlay: r.Far, UnderlayMTU: r.Underlay.MTU, Overlay: r.CIDR.Addr(),
			OverlayMTU: r.MTU, Tunnel: r.Tunnel,
		})
	}
	results, err := probe.All(p.t.Context(), p.nodes[0], targets)
	if err != nil {
		p.t.Fatal(err)
	}
	if len(results) != 2 {
		p.t.Fatalf("%d results, want one of each family", len(results))
	}
	return results
}

// TestAgainAndAgain: the peer has no address of its own in the mesh, and its kernel limits the errors by which it answers.
// Probes that follow one another find no fault.
func TestAgainAndAgain(t *testing.T) {
	p := join(t, "host-gw", false)
	for i := range 4 {
		for _, r := range p.ask() {
			if r.Problem != probe.None {
				t.Errorf("probe %d: %s: %s", i+1, r.Problem, r.Message)
			}
		}
	}
	path := p.topo[0].PeerPaths(p.topo[0].Peers[0])[0]
	target := probe.Target{Underlay: path.Far, Overlay: path.CIDR.Addr(), Tunnel: path.Tunnel}
	for range 20 {
		if _, err := target.Once(t.Context(), p.nodes[0], 1400, 30*time.Second); err != nil {
			t.Errorf("one packet: %v", err)
		}
	}
}

func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name, backend string
		spoiled       bool
		harm          func(p *pair)
		want          probe.Problem // of both families
		says          string
	}{
		{name: "host-gw", backend: "host-gw"},
		{name: "vxlan", backend: "vxlan"},
		{
			name: "wire cut", backend: "vxlan", harm: func(p *pair) { p.ip(1, "link set eth0 down") }, want: probe.Underlay,
			says: "peer b does not answer at",
		},
		{
			name: "wire cut, host-gw", backend: "host-gw", harm: func(p *pair) { p.ip(1, "link set eth0 down") },
			want: probe.Underlay, says: "peer b does not answer at",
		},
		{name: "port closed", backend: "vxlan", harm: func(p *pair) {
			p.nft(1, "add table inet shut", "add chain inet shut in { type filter hook input priority 0; }",
				"add rule inet shut in udp dport 8472 drop")
		}, want: probe.Encapsulation, says: "but not through vxlan"},
		{name: "the first address is a pod's, to which a policy denies packets", backend: "vxlan", harm: func(p *pair) {
			p.ip(1, "addr add 10.244.2.1/32 dev flannel.1", "addr del 10.244.2.0/32 dev flannel.1",
				"addr add fd00:244:2::1/128 dev flannel-v6.1 nodad", "addr del fd00:244:2::/128 dev flannel-v6.1",
				"link add pod type veth peer name pod1", "link set pod up", "link set pod1 up",
				"route replace 10.244.2.0 dev pod", "-6 route replace fd00:244:2:: dev pod")
			p.nft(1, "add table inet deny", "add chain inet deny in { type filter hook forward priority 0; policy drop; }")
		}},
		{name: "wrong forwarding entry", backend: "vxlan", harm: func(p *pair) {
			for _, family := range []string{"", "-v6"} {
				dev := "flannel" + family + ".1"
				entry := strings.Fields(nettest.Run(p.t, p.nodes[0], "bridge", "fdb", "show", "dev", dev))
				nettest.Run(p.t, p.nodes[0], "bridge", "fdb", "replace", entry[0], "dev", dev, "dst",
					map[string]string{"": "192.168.0.77", "-v6": "fd00::77"}[family], "self", "permanent")
			}
		}, want: probe.Encapsulation, says: "but not through vxlan"},
		{
			name: "device gone at the peer", backend: "vxlan",
			harm: func(p *pair) { p.ip(1, "link del flannel.1", "link del flannel-v6.1") }, want: probe.Encapsulation,
		},
		{name: "no forwarding at the peer", backend: "host-gw", harm: func(p *pair) {
			p.nft(1, "add table inet shut", "add chain inet shut in { type filter hook prerouting priority 0; }",
				"add rule inet shut in ip daddr 10.244.0.0/16 drop", "add rule inet shut in ip6 daddr fd00:244::/32 drop")
		}, want: probe.Encapsulation, says: "no address of its podCIDR"},
		{
			name: "narrow wire", backend: "vxlan", harm: func(p *pair) { p.narrow(1400) }, want: probe.MTU,
			says: "do not reach peer b",
		},
		{
			name: "narrow wire, host-gw", backend: "host-gw", harm: func(p *pair) { p.narrow(1400) }, want: probe.MTU,
			says: "1400 pass",
		},
		{name: "wrong checksums", backend: "vxlan", spoiled: true, want: probe.Checksum, says: "wrong checksums"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.backend == "vxlan" {
				nettest.Need(t, "vxlan")
			}
			p := join(t, c.backend, c.spoiled)
			if c.harm != nil {
				c.harm(p)
			}
			if path := p.topo[0].PeerPaths(p.topo[0].Peers[0])[0]; c.want == probe.None && path.Tunnel {
				target := probe.Target{Underlay: path.Far, Overlay: path.CIDR.Addr(), Tunnel: true}
				if _, err := target.Once(t.Context(), p.nodes[0], probe.Small, 5*time.Second); err != nil {
					t.Errorf("one packet: %v", err)
				}
			}
			for _, r := range p.ask() {
				if r.Problem != c.want || !strings.Contains(r.Message, c.says) || (r.Hint == "") != (c.want == probe.None) {
					t.Errorf("%s: problem %q, want %q with %q\n%+v", r.Overlay, r.Problem, c.want, c.says, r)
				}
			}
		})
	}
}

func (p *pair) nft(i int, commands ...string) {
	p.t.Helper()
	for _, c := range commands {
		nettest.Run(p.t, p.nodes[i], "nft", c)
	}
}

// narrow lowers the MTU of the other end only: larger packets are lost silently.
func (p *pair) narrow(mtu int) {
	p.t.Helper()
	p.nft(1, "add table netdev narrow", "add chain netdev narrow in { type filter hook ingress device eth0 priority 0; }",
		fmt.Sprintf("add rule netdev narrow in meta length > %d drop", mtu))
}
