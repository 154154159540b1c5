// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// guardStage has two nodes with a bridge each: an attacker, its victim and a neighbor on the first, another attacker on
// the second.
type guardStage struct {
	t                               *testing.T
	n                               *node
	attacker, victim, neighbor, far pod
	farGateway                      net.HardwareAddr
	ear                             *nettest.Listener
}

func newGuardStage(t *testing.T, options string, agent bool) *guardStage {
	t.Helper()
	options = `"isDefaultGateway":true,` + options
	n, m := newNode(t, bridged(options, ranges)), newNode(t,
		bridged(options, strings.NewReplacer("10.1.", "10.2.", "fd00:1:", "fd00:2:").Replace(ranges)))
	n.agent, m.agent = agent, agent
	s := &guardStage{
		t: t, n: n, attacker: n.mustAdd("attacker"), victim: n.mustAdd("victim"), neighbor: n.mustAdd("neighbor"),
		far: m.mustAdd("far"),
	}
	nettest.IP(t, n.ns, "link add up0 type veth peer name up0 netns "+m.ns.Path())
	for i, ns := range []*netns.NS{n.ns, m.ns} {
		_, _ = nettest.Try(ns, "sysctl", "-qw", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0")
		nettest.IP(t, ns, fmt.Sprintf("addr add 192.0.2.%d/24 dev up0", i+1))
		nettest.IP(t, ns, fmt.Sprintf("addr add fd00:f::%d/64 dev up0 nodad", i+1))
		nettest.IP(t, ns, "link set up0 up")
		nettest.IP(t, ns, fmt.Sprintf("route add 10.%d.0.0/24 via 192.0.2.%d", 2-i, 2-i))
		nettest.IP(t, ns, fmt.Sprintf("route add fd00:%d::/64 via fd00:f::%d", 2-i, 2-i))
	}
	s.farGateway = nettest.MAC(t, m.ns, "br0")
	s.ear = nettest.Listen(t, s.victim.ns, 4000)
	for _, p := range []pod{s.attacker, s.far} { // legitimate traffic
		nettest.IP(t, p.ns, "link set lo up")
		for _, ip := range slices.Concat(p.result.IPs, s.victim.result.IPs, s.neighbor.result.IPs, s.far.result.IPs) {
			s.reaches(p, ip.Address.Addr())
			s.reaches(p, ip.Gateway)
		}
	}
	return s
}

// reaches waits until an address replies.
func (s *guardStage) reaches(from pod, to netip.Addr) {
	s.t.Helper()
	var out string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		var err error
		if out, err = nettest.Try(from.ns, "ping", "-c1", "-W1", to.String()); err == nil {
			return
		}
	}
	s.t.Fatalf("%s does not answer %s: %s", to, from.result.IPs[0].Address, out)
}

// forged returns functions that send spoofed packets, by description.
func (s *guardStage) forged() map[string]func() {
	out := map[string]func(){}
	own, victim := nettest.MAC(s.t, s.attacker.ns, "eth0"), nettest.MAC(s.t, s.victim.ns, "eth0")
	add := func(name string, from pod, src, dst net.HardwareAddr, as string) {
		a := netip.MustParseAddr(as)
		to := s.victim.result.IPs[0].Address.Addr()
		if a.Is6() {
			to = s.victim.result.IPs[1].Address.Addr()
		}
		d := nettest.Datagram{
			SrcMAC: src, DstMAC: dst, Src: netip.AddrPortFrom(a, 4000), Dst: netip.AddrPortFrom(to, 4000), Text: name + " " + as,
		}
		out[d.Text] = func() { nettest.SendFrame(s.t, from.ns, "eth0", d.Frame()) }
	}
	bridge, neighbor := nettest.MAC(s.t, s.n.ns, "br0"), nettest.MAC(s.t, s.neighbor.ns, "eth0")
	for i, gateway := range s.victim.result.IPs {
		add("the gateway's", s.attacker, own, victim, gateway.Gateway.String())
		add("the gateway's and its MAC", s.attacker, bridge, victim, gateway.Gateway.String())
		friend := s.neighbor.result.IPs[i].Address.Addr().String()
		add("a neighbor's", s.attacker, own, victim, friend)
		add("a neighbor's and its MAC", s.attacker, neighbor, victim, friend)
		add("a neighbor's from another node", s.far, nettest.MAC(s.t, s.far.ns, "eth0"), s.farGateway, friend)
		add("a stranger's", s.attacker, own, victim, []string{"198.51.100.9", "2001:db8::9"}[i])
		add("the node's", s.attacker, own, victim, []string{"192.0.2.1", "fd00:f::1"}[i])
	}
	add("the gateway's from another node", s.far, nettest.MAC(s.t, s.far.ns, "eth0"), s.farGateway,
		s.victim.result.IPs[1].Gateway.String())
	return out
}

// TestSourceGuard: in an agent no pod on a bridge can use the addresses of others, unless the network disables
// anti-spoofing; the plugin binary behaves like the reference plugin.
func TestSourceGuard(t *testing.T) {
	for name, tc := range map[string]struct {
		options        string
		agent, arrives bool
	}{"agent": {"", true, false}, "trusted": {`"guard":false,`, true, true}, "drop-in": {"", false, true}} {
		t.Run(name, func(t *testing.T) {
			s := newGuardStage(t, tc.options, tc.agent)
			for text, send := range s.forged() {
				limit := 200 * time.Millisecond
				if tc.arrives {
					limit = time.Minute
				}
				if got := s.ear.Receives(text, limit, send); got != tc.arrives {
					t.Errorf("a packet with %q arrives: %t", text, got)
				}
			}
			if got := s.poisons(tc.arrives); got != tc.arrives {
				t.Errorf("the victim's neighbor is taken over by ARP: %t", got)
			}
		})
	}
}

// poisons sends ARP replies with the neighbor's address from the attacker, and reports whether the victim's traffic is
// redirected.
func (s *guardStage) poisons(wanted bool) bool {
	s.t.Helper()
	s.reaches(s.victim, first(s.neighbor)) // an existing entry can be changed
	own := nettest.MAC(s.t, s.attacker.ns, "eth0")
	ip, to := s.neighbor.result.IPs[0].Address.Addr().AsSlice(), s.victim.result.IPs[0].Address.Addr().AsSlice()
	head, _ := hex.DecodeString("080600010800060400" + "02")
	victim := nettest.MAC(s.t, s.victim.ns, "eth0")
	frame := append(append(append([]byte{}, victim...), own...), head...)
	frame = append(append(append(append(frame, own...), ip...), victim...), to...)
	taken := func() bool {
		return strings.Contains(nettest.IP(s.t, s.victim.ns, "neigh show "+s.neighbor.result.IPs[0].Address.Addr().String()),
			own.String())
	}
	limit := 500 * time.Millisecond
	if wanted {
		limit = time.Minute
	}
	for end := time.Now().Add(limit); time.Now().Before(end) && !taken(); time.Sleep(20 * time.Millisecond) {
		nettest.SendFrame(s.t, s.attacker.ns, "eth0", frame)
	}
	return taken()
}

// TestGuardedTraffic: legitimate traffic of a guarded pod passes, including duplicate address detection of its own
// addresses. A tuned MAC address has a test of its own.
func TestGuardedTraffic(t *testing.T) {
	n := newNode(t, bridged(`"isGateway":true,"enabledad":true,`, ranges))
	n.agent = true
	a, b := n.mustAdd("a"), n.mustAdd("b")
	ping(t, a.ns, first(b))
	six := a.result.IPs[1].Address
	nettest.IP(t, a.ns, "addr flush dev eth0 scope global")
	nettest.IP(t, a.ns, "addr add "+a.result.IPs[0].Address.String()+" dev eth0")
	nettest.IP(t, a.ns, "addr add "+six.String()+" dev eth0")
	for end := time.Now().Add(time.Minute); strings.Contains(nettest.IP(t, a.ns, "addr show dev eth0"),
		"tentative"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("duplicate address detection does not end")
		}
	}
	ping(t, a.ns, first(b))
	ping(t, a.ns, b.result.IPs[1].Address.Addr())
	ping(t, n.ns, six.Addr())
	nettest.IP(t, a.ns, "addr add 10.1.0.200/24 dev eth0") // not its own
	nettest.IP(t, b.ns, "neigh flush dev eth0")
	silence(t, b, netip.MustParseAddr("10.1.0.200"), "an address that nobody gave the pod")
}
