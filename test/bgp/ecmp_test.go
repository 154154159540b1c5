// SPDX-License-Identifier: Apache-2.0

package bgp_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// fork is a node with a link to each of several routers, behind which there is one server.
type fork struct {
	*node
	server  *netns.NS
	routers []*netns.NS
}

// newFork connects a node to routers by links eth1, eth2 and so on, whose addresses are 10.9.i.1 and 10.9.i.2, fd09:i::1 and
// fd09:i::2. The server has the addresses 203.0.113.1 to
// 203.0.113.4 and 2001:db8:99::1.
func newFork(t *testing.T, routers int) fork {
	t.Helper()
	f := fork{node: newNode(t, "n1"), server: nettest.NS(t, "server")}
	nettest.Run(t, f.server, "ip", "link", "set", "lo", "up")
	for i := 1; i <= 4; i++ {
		nettest.Run(t, f.server, "ip", "addr", "add", fmt.Sprintf("203.0.113.%d/32", i), "dev", "lo")
	}
	nettest.Run(t, f.server, "ip", "addr", "add", "2001:db8:99::1/128", "dev", "lo")
	for i := 1; i <= routers; i++ {
		r := nettest.NS(t, fmt.Sprintf("router%d", i))
		nettest.Run(t, r, "ip", "link", "set", "lo", "up")
		nettest.Run(t, r, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
		addrs := func(net string, host int) string {
			return fmt.Sprintf("10.%s.%d.%d/24 fd0%s:%d::%d/64", net, i, host, net, i, host)
		}
		connect(t, f.ns, fmt.Sprintf("eth%d", i), addrs("9", 1), r, "node", addrs("9", 2))
		connect(t, f.server, fmt.Sprintf("eth%d", i), addrs("8", 1), r, "server", addrs("8", 2))
		nettest.Run(t, r, "ip", "route", "add", "203.0.113.0/24", "via", fmt.Sprintf("10.8.%d.1", i))
		nettest.Run(t, r, "ip", "route", "add", "2001:db8:99::/48", "via", fmt.Sprintf("fd08:%d::1", i))
		nettest.Run(t, r, "ip", "route", "add", "10.244.1.0/24", "via", fmt.Sprintf("10.9.%d.1", i))
		f.routers = append(f.routers, r)
		for _, family := range []struct{ name, addr string }{{"four", fmt.Sprintf("10.9.%d.2", i)}, {"six", fmt.Sprintf("fd09:%d::2", i)}} {
			f.put(fmt.Sprintf("router%d-%s.yaml", i, family.name), fmt.Sprintf(`apiVersion: weft.dev/v1alpha1
kind: BGPPeer
metadata: {name: router%d-%s}
spec: {peerIP: %q, asNumber: 65001, sourceAddress: None}
`, i, family.name, family.addr))
		}
	}
	f.put("node.yaml", nodeManifest("n1", "", []string{"10.244.1.0/24", "fd44:1::/64"}, []string{"10.9.1.1", "fd09:1::1"}))
	return f
}

// birdOf is the configuration of router i. To 198.51.100.0/24 the path of the first one is longer.
func birdOf(i int) string {
	export := "export where source = RTS_STATIC;"
	if i == 1 {
		export = "export filter { if source != RTS_STATIC then reject; if net = 198.51.100.0/24 then bgp_path.prepend(65001); accept; };"
	}
	return strings.NewReplacer("%", fmt.Sprint(i), "EXPORT", export).Replace(`
router id 10.9.%.2;
protocol static s4 { ipv4; route 203.0.113.0/24 blackhole; route 198.51.100.0/24 blackhole; }
protocol static s6 { ipv6; route 2001:db8:99::/48 blackhole; }
protocol bgp four { local 10.9.%.2 as 65001; neighbor 10.9.%.1 as 64512; ipv4 { import all; EXPORT next hop self; }; }
protocol bgp six { local fd09:%::2 as 65001; neighbor fd09:%::1 as 64512; ipv6 { import all; export where source = RTS_STATIC; next hop self; }; }
`)
}

// over waits until the node's routes of both families go over exactly these links.
func (f fork) over(links ...string) {
	f.t.Helper()
	at := func(prefix string) (out []string) {
		words := strings.Fields(f.route(prefix))
		for i, w := range words[:max(len(words)-1, 0)] {
			if w == "dev" {
				out = append(out, words[i+1])
			}
		}
		slices.Sort(out)
		return out
	}
	eventually(f.t, fmt.Sprintf("routes go over %v", links), func() bool {
		return slices.Equal(at("203.0.113.0/24"), links) && slices.Equal(at("2001:db8:99::/48"), links)
	}, func() string {
		return fmt.Sprintf("%s\n%s\n%+v", f.route("203.0.113.0/24"), f.route("2001:db8:99::/48"), f.status())
	})
}

// Three routers over three links, two BIRDs and an FRR, announce the same prefixes: they share the load. The node uses the
// others without losing a packet while one is lost, and all when it is back. A longer path is not used.
func TestECMPOverLinks(t *testing.T) {
	f := newFork(t, 3)
	var birds []*bird
	for i, r := range f.routers[:2] {
		birds = append(birds, startBird(t, r, birdOf(i+1)))
	}
	third := startFRR(t, f.routers[2], strings.NewReplacer("10.9.0.", "10.9.3.", "fd09::", "fd09:3::").Replace(frrToN1))
	for _, a := range []string{"10.244.1.7/32", "10.244.1.8/32", "10.244.1.9/32", "10.244.1.10/32"} { // pods
		nettest.Run(t, f.ns, "ip", "addr", "add", a, "dev", "lo")
	}
	nettest.Run(t, f.server, "ip", "route", "add", "10.244.1.0/24", "via", "10.8.3.2") // the way back is not the test's
	f.startSpeaker()
	f.startAgent("")
	f.over("eth1", "eth2", "eth3")
	eventually(t, "the longer path is not used", func() bool {
		r := f.route("198.51.100.0/24")
		return strings.Contains(r, "via 10.9.2.2") && !strings.Contains(r, "10.9.1.2")
	}, func() string { return f.route("198.51.100.0/24") })

	pods := flows(t, f)
	birds[0].ask("disable", "four")
	birds[0].ask("disable", "six")
	f.over("eth2", "eth3")
	birds[0].ask("enable", "four")
	birds[0].ask("enable", "six")
	f.over("eth1", "eth2", "eth3")
	third.ask("configure terminal", "router bgp 65001", "neighbor 10.9.3.1 shutdown", "neighbor fd09:3::1 shutdown")
	f.over("eth1", "eth2")
	birds[1].ask("disable", "four")
	birds[1].ask("disable", "six")
	f.over("eth1")
	birds[1].ask("enable", "four")
	birds[1].ask("enable", "six")
	f.over("eth1", "eth2")
	for _, p := range pods {
		p.moves(t)
		p.end()
		if lost := p.lost.Load(); lost > 0 {
			t.Errorf("%d of %d datagrams are lost", lost, p.sent.Load())
		}
	}

	// A link that is down is used no more, and nothing has to be withdrawn for it.
	nettest.Run(t, f.ns, "ip", "link", "set", "eth2", "down")
	f.over("eth1")
}

// flows starts traffic from four pods of a node to the server, each to an address of its own.
func flows(t *testing.T, f fork) (out []*traffic) {
	t.Helper()
	for i := 1; i <= 4; i++ {
		p := flow(t, f.ns, fmt.Sprintf("10.244.1.%d", 6+i), f.server, fmt.Sprintf("203.0.113.%d", i))
		p.moves(t)
		out = append(out, p)
	}
	return out
}
