// SPDX-License-Identifier: Apache-2.0

package bgp_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// unnumberedFRR and unnumberedBIRD are routers with the node on their link n1, which has link-local addresses only.
const (
	unnumberedFRR = `frr defaults datacenter
log stdout
router bgp 65001
 bgp router-id 10.9.9.1
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor n1 interface remote-as 64512
 address-family ipv4 unicast
  network 203.0.113.0/24
 exit-address-family
 address-family ipv6 unicast
  neighbor n1 activate
  network 2001:db8:99::/48
 exit-address-family
`
	unnumberedBIRD = `
router id 10.9.9.2;
protocol radv { interface "n1" { default lifetime 0; min ra interval 3; max ra interval 4; }; }
protocol static s4 { ipv4; route 203.0.113.0/24 blackhole; }
protocol static s6 { ipv6; route 2001:db8:99::/48 blackhole; }
protocol kernel { ipv4 { export where source = RTS_BGP; }; }
protocol bgp n1 {
  local as 65001;
  neighbor range fe80::/10 as 64512;
  interface "n1";
  graceful restart on;
  ipv4 { import all; export where source = RTS_STATIC; next hop self; extended next hop on; };
  ipv6 { import all; export where source = RTS_STATIC; next hop self; };
}
`
)

// unnumbered connects a node to two routers by the links eth1 and eth2 without addresses.
func unnumbered(t testing.TB) (*node, [2]*netns.NS) {
	t.Helper()
	n := newNode(t, "n1")
	connect(t, n.ns, "eth0", "10.9.0.1/24", nettest.NS(t, "hosts"), "eth0", "10.9.0.2/24")
	nettest.Run(t, n.ns, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	var routers [2]*netns.NS
	for i := range routers {
		r := nettest.NS(t, fmt.Sprintf("router%d", i+1))
		nettest.Run(t, r, "ip", "link", "set", "lo", "up")
		nettest.Run(t, r, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
		nettest.Run(t, r, "ip", "addr", "add", "203.0.113.1/32", "dev", "lo")
		connect(t, n.ns, fmt.Sprintf("eth%d", i+1), "", r, "n1", "")
		routers[i] = r
	}
	n.put("node.yaml", nodeManifest("n1", "", []string{"10.244.1.0/24", "fd44:1::/64"}, []string{"10.9.0.1"}))
	n.put("peers.yaml", unnumberedPeer("eth1", "")+"---\n"+unnumberedPeer("eth2", ""))
	return n, routers
}

func unnumberedPeer(link, more string) string {
	return fmt.Sprintf("apiVersion: weft.dev/v1alpha1\nkind: BGPPeer\nmetadata: {name: on-%s}\nspec: {interface: %s, asNumber: 65001%s}\n",
		link, link, more)
}

// overLinks waits until the node's routes of both families go over exactly these links, to link-local next hops.
func (n *node) overLinks(links ...string) {
	n.t.Helper()
	eventually(n.t, fmt.Sprintf("routes go over %v", links), func() bool {
		for prefix, via := range map[string]string{"203.0.113.0/24": "via inet6 fe80:", "2001:db8:99::/48": "via fe80:"} {
			r := n.route(prefix)
			if strings.Count(r, via) != len(links) {
				return false
			}
			for _, l := range links {
				if !strings.Contains(r, "dev "+l+" ") {
					return false
				}
			}
		}
		return true
	}, func() string {
		return fmt.Sprintf("%s\n%s\n%+v", n.route("203.0.113.0/24"), n.route("2001:db8:99::/48"), n.status())
	})
}

// FRR and BIRD on links without addresses: each side finds the other, and both families are routed to link-local next hops,
// in both directions. Packets pass. A session that is lost, and a link that goes, take their routes away.
func TestUnnumbered(t *testing.T) {
	n, routers := unnumbered(t)
	f := startFRR(t, routers[0], unnumberedFRR)
	b := startBird(t, routers[1], unnumberedBIRD)
	n.startSpeaker()
	n.startAgent("")
	n.overLinks("eth1", "eth2")
	f.routes("10.244.1.0/24", "via inet6 fe80:", true)
	f.routes("fd44:1::/64", "via fe80:", true)
	b.hears("10.244.1.0/24", "via fe80:", true)
	b.hears("fd44:1::/64", "via fe80:", true)
	for _, p := range n.status().Peers {
		if zone := p.Addr.Zone(); zone != p.Interface || p.Session != "established" {
			t.Errorf("peer %+v", p)
		}
	}

	nettest.Run(t, n.ns, "ip", "addr", "add", "10.244.1.7/32", "dev", "lo") // a pod
	pings := func(what string) {
		t.Helper()
		ping := []string{"ping", "-c1", "-W1", "-I", "10.244.1.7", "203.0.113.1"}
		eventually(t, what, func() bool { _, err := nettest.Try(n.ns, ping...); return err == nil },
			func() string { return n.route("203.0.113.0/24") })
	}
	pings("packets pass")

	b.ask("disable", "n1")
	b.ask("disable", `"dynbgp*"`) // the session that n1 has made
	n.overLinks("eth1")
	pings("packets pass over FRR")
	b.ask("enable", "n1")
	b.ask("enable", `"dynbgp*"`)
	n.overLinks("eth1", "eth2")
	nettest.Run(t, routers[0], "ip", "link", "set", "n1", "down")
	n.overLinks("eth2")
	pings("packets pass over BIRD")
	nettest.Run(t, routers[0], "ip", "link", "set", "n1", "up")
	n.overLinks("eth1", "eth2")

	f.ask("configure terminal", "router bgp 65001", "address-family ipv4 unicast", "no network 203.0.113.0/24")
	b.ask("disable", "s4")
	n.forgets("203.0.113.0/24")
}

// A BGPPeer whose interface does not exist, has no router, or has two, reports that, and other sessions continue. One with
// two ways to find its peer is refused.
func TestUnnumberedBad(t *testing.T) {
	n, routers := unnumbered(t)
	b := startBird(t, routers[1], unnumberedBIRD)
	n.put("peers.yaml", unnumberedPeer("eth2", "")+"---\n"+unnumberedPeer("eth7", "")+"---\n"+unnumberedPeer("eth1", "")+"---\n"+
		strings.Replace(unnumberedPeer("eth3", ", peerIP: 192.0.2.1"), "on-eth3", "both", 1))
	n.startSpeaker()
	n.startAgent("")
	reports := func(text string) {
		t.Helper()
		eventually(t, "the status has "+text, func() bool { return strings.Contains(fmt.Sprintf("%+v", n.status()), text) },
			func() string { return fmt.Sprintf("%+v", n.status()) })
	}
	reports("interface eth7 does not exist")
	reports("no router is heard on interface eth1")
	reports(`spec.interface "eth3" and spec.peerIP "192.0.2.1" are both set`)
	n.learns("203.0.113.0/24", "inet6 fe80:")

	// The interface appears, and the router is another one later.
	third := nettest.NS(t, "router3")
	nettest.Run(t, third, "ip", "link", "set", "lo", "up")
	connect(t, n.ns, "eth7", "", third, "n1", "")
	startBird(t, third, strings.NewReplacer("10.9.9.2", "10.9.9.3", "203.0.113.0", "198.51.100.0").Replace(unnumberedBIRD))
	n.learns("198.51.100.0/24", "inet6 fe80:")
	nettest.Run(t, n.ns, "ip", "link", "del", "eth7")
	n.forgets("198.51.100.0/24")
	begin := time.Now()
	connect(t, n.ns, "eth7", "", third, "n1", "")
	n.learns("198.51.100.0/24", "inet6 fe80:")
	if took := time.Since(begin); took > 75*time.Second { // 3 s on a host that is not busy
		t.Errorf("the session over a link that was made again takes %s", took)
	}

	if r := n.route("203.0.113.0/24"); !strings.Contains(r, "dev eth2") || !strings.Contains(b.ask("show", "protocols"), "Established") {
		t.Errorf("the other session is disturbed: %q", r)
	}
}

// With a password: a second router on a link is reported, and does not take the place of the one with which the session is; when that is
// gone, it does.
func TestUnnumberedTwoRouters(t *testing.T) {
	n, routers := unnumbered(t)
	n.put("peers.yaml", unnumberedPeer("eth2", ", password: {secretKeyRef: {name: bgp, key: password}}"))
	n.put("secret.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: bgp, namespace: kube-system}\n"+
		"stringData: {password: \"1\"}\n")
	withPassword := strings.NewReplacer("graceful", "password \"1\"; graceful").Replace(unnumberedBIRD)
	first := startBird(t, routers[1], withPassword)
	n.startSpeaker()
	n.startAgent("")
	n.learns("203.0.113.0/24", "inet6 fe80:")
	n.established()
	used := n.status().Peers[0].Addr

	second := nettest.NS(t, "router3")
	nettest.Run(t, second, "ip", "link", "set", "lo", "up")
	if out, err := nettest.Try(routers[1], "ip", "link", "add", "link", "n1", "name", "m1", "type", "macvlan"); err != nil {
		nettest.SkipMissing(t, "links of type macvlan: "+out)
	}
	nettest.Run(t, routers[1], "ip", "link", "set", "m1", "netns", second.Path(), "name", "n1")
	nettest.Run(t, second, "ip", "link", "set", "n1", "up")
	startBird(t, second, strings.NewReplacer("10.9.9.2", "10.9.9.3", "203.0.113.0", "198.51.100.0").Replace(withPassword))
	eventually(t, "the second router is reported", func() bool {
		return strings.Contains(n.status().Peers[0].Error, "interface eth2 has the routers")
	}, func() string { return fmt.Sprintf("%+v", n.status()) })
	if p := n.status().Peers[0]; p.Addr != used || p.Session != "established" {
		t.Errorf("the session has moved from %s: %+v", used, p)
	}
	first.kill()
	nettest.Run(t, routers[1], "ip", "addr", "flush", "dev", "n1") // a router that has failed does not answer
	n.learns("198.51.100.0/24", "inet6 fe80:")
	n.forgets("203.0.113.0/24")
}

// With the same AS at both ends (iBGP), also by the localASNumber of a BGPPeer: FRR, BIRD and another node on links without
// addresses find each other and route both families to link-local next hops. The next hop of a route that another router
// has announced stays that router's, as iBGP keeps it, unless the peer is of another AS.
func TestUnnumberedInternal(t *testing.T) {
	n, routers := unnumbered(t)
	far := newNode(t, "n3")
	connect(t, n.ns, "eth3", "", far.ns, "n1", "")
	connect(t, far.ns, "eth0", "10.8.0.1/24", nettest.NS(t, "farhosts"), "eth0", "10.8.0.2/24")
	far.put("node.yaml", nodeManifest("n3", "", []string{"10.248.1.0/24", "fd48:1::/64"}, []string{"10.8.0.1"}))
	internal := func(link, as string) string { return strings.Replace(unnumberedPeer(link, ""), "65001", as, 1) }
	far.put("peers.yaml", internal("n1", "64512"))
	n.put("peers.yaml", internal("eth1", "64512")+"---\n"+internal("eth2", "65001, localASNumber: 65001")+"---\n"+internal("eth3", "64512"))
	f := startFRR(t, routers[0], strings.NewReplacer("router bgp 65001", "router bgp 64512", "remote-as 64512", "remote-as internal").
		Replace(unnumberedFRR))
	// 198.51.100.0/24 is another router's, which both BIRD and the node reach over eth0.
	birdConf := strings.NewReplacer("as 64512;", "as 65001; direct;", "export where source = RTS_STATIC; next hop self; extended",
		"export filter { if source != RTS_STATIC then reject; if net = 198.51.100.0/24 then bgp_next_hop = 10.9.0.2; accept; }; "+
			"next hop keep; extended",
		"route 203.0.113.0/24 blackhole;", "route 203.0.113.0/24 blackhole; route 198.51.100.0/24 blackhole;").Replace(unnumberedBIRD)
	b := startBird(t, routers[1], birdConf)
	for _, n := range []*node{n, far} {
		n.startSpeaker()
		n.startAgent("")
	}
	n.learns("203.0.113.0/24", "inet6 fe80:")
	n.learns("2001:db8:99::/48", "fe80:")
	n.learns("10.248.1.0/24", "inet6 fe80:")
	n.learns("fd48:1::/64", "fe80:")
	n.learns("198.51.100.0/24", "10.9.0.2")
	far.learns("10.244.1.0/24", "inet6 fe80:")
	far.learns("fd44:1::/64", "fe80:")
	f.routes("10.244.1.0/24", "via inet6 fe80:", true)
	f.routes("fd44:1::/64", "via fe80:", true)
	b.hears("10.244.1.0/24", "via fe80:", true)
	b.hears("fd44:1::/64", "via fe80:", true)

	nettest.Run(t, n.ns, "ip", "addr", "add", "10.244.1.7/32", "dev", "lo") // pods
	nettest.Run(t, far.ns, "ip", "addr", "add", "10.248.1.7/32", "dev", "lo")
	for _, to := range []string{"203.0.113.1", "10.248.1.7"} {
		eventually(t, "packets pass to "+to, func() bool {
			_, err := nettest.Try(n.ns, "ping", "-c1", "-W1", "-I", "10.244.1.7", to)
			return err == nil
		}, func() string { return n.route("203.0.113.0/24") + n.route("10.248.1.0/24") })
	}
}
