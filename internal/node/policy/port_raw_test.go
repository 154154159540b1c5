// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

const sendsNothing = `
apiVersion: k8s.cni.cncf.io/v1beta1
kind: MultiNetworkPolicy
metadata: {namespace: shop, name: fast, annotations: {k8s.v1.cni.cncf.io/policy-for: fast}}
spec:
  podSelector: {matchLabels: {app: web}}
  policyTypes: [Egress]
`

// ported adds an interface of both families at a bridge port to a pod.
func (w *world) ported(p *pod, n int) *pod {
	w.t.Helper()
	nettest.NeedBridgeNetfilter(w.t)
	six := fmt.Sprintf("fd00:8::%d", n)
	q := w.bridged(p, n, func(g *model.WorkloadEndpoint) {
		g.HostLink, g.HostEnd, g.Addrs = fmt.Sprintf("port%d", n), model.HostEndPort,
			append(g.Addrs, netip.MustParseAddr(six))
	})
	nettest.IP(w.t, q.ns, "addr add "+six+"/64 dev net1 nodad")
	_, _ = nettest.Try(q.ns, "sysctl", "-qw", "net.ipv4.conf.all.rp_filter=0")
	_, _ = nettest.Try(nil, "ip", "addr", "add", "fd00:8::1/64", "dev", "pbr0", "nodad")
	return q
}

// raw is a datagram from one pod's port to another's, with any source address; a zero from is the pod's own.
func (w *world) raw(from, to *pod, as netip.Addr, text string) nettest.Datagram {
	d := nettest.Datagram{
		SrcMAC: nettest.MAC(w.t, from.ns, "net1"), DstMAC: nettest.MAC(w.t, to.ns, "net1"), Text: text,
		Src: netip.AddrPortFrom(from.Addrs[0], 4000), Dst: netip.AddrPortFrom(to.Addrs[0], 4000),
	}
	if as.IsValid() {
		d.Src = netip.AddrPortFrom(as, 4000)
	}
	if d.Src.Addr().Is6() {
		d.Dst = netip.AddrPortFrom(to.Addrs[1], 4000)
	}
	return d
}

// TestPortsEgressRaw: an egress policy applies to what a container sends by raw sockets, to pods, to the node and to
// all others, whatever it changes on its interface.
func TestPortsEgressRaw(t *testing.T) {
	w := newWorld(t)
	w.start()
	web, other := w.ported(w.pod("shop/web", "app: web"), 2), w.ported(w.pod("shop/other", "app: other"), 3)
	lease := nettest.Listen(t, other.ns, 67)
	there, node := nettest.Listen(t, other.ns, 4000), nettest.Listen(t, nil, 4000)
	bridge := nettest.MAC(t, nil, "pbr0")
	type probe struct {
		ear *nettest.Listener
		nettest.Datagram
	}
	var probes []probe
	for i, own := range web.Addrs {
		d := w.raw(web, other, own, fmt.Sprint("to the pod ", i))
		probes = append(probes, probe{there, d})
		if i == 0 {
			l := d
			l.Text, l.Src, l.Dst = "as a client of DHCP", netip.AddrPortFrom(own, 68), netip.AddrPortFrom(d.Dst.Addr(), 67)
			probes = append(probes, probe{lease, l})
		}
		d.Text, d.DstMAC = fmt.Sprint("to all ports ", i), net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
		probes = append(probes, probe{there, d})
		d.Text, d.DstMAC = fmt.Sprint("to the node ", i), bridge
		d.Dst = netip.AddrPortFrom(netip.MustParseAddr([]string{"10.8.0.1", "fd00:8::1"}[i]), 4000)
		probes = append(probes, probe{node, d})
	}
	lands := func(p probe, limit time.Duration) bool {
		return p.ear.Receives(p.Text, limit, func() { nettest.SendFrame(t, web.ns, "net1", p.Frame()) })
	}
	for _, p := range probes {
		if !lands(p, 15*time.Second) {
			t.Fatalf("without a policy %q does not arrive", p.Text)
		}
	}
	w.manifest("fast", sendsNothing)
	w.eventually("the policy is written", func() bool { return !lands(probes[0], 300*time.Millisecond) })
	for _, p := range probes[1:] {
		if lands(p, 300*time.Millisecond) {
			t.Errorf("%q arrives though the pod may send nothing", p.Text)
		}
	}
	// Root in the pod flushes its interface, and sets another MAC and address.
	_, _ = nettest.Try(web.ns, "nft", "flush", "ruleset")
	nettest.IP(t, web.ns, "link set net1 down")
	nettest.IP(t, web.ns, "link set net1 name own address 02:00:00:00:00:77")
	nettest.IP(t, web.ns, "link set own up")
	for _, p := range probes[:2] {
		p.Text, p.SrcMAC = p.Text+" as another", net.HardwareAddr{2, 0, 0, 0, 0, 0x77}
		if p.ear.Receives(p.Text, 300*time.Millisecond, func() { nettest.SendFrame(t, web.ns, "own", p.Frame()) }) {
			t.Errorf("%q arrives", p.Text)
		}
	}
	w.remove("fast")
	p := probes[0]
	p.SrcMAC = net.HardwareAddr{2, 0, 0, 0, 0, 0x77}
	w.eventually("without the policy it arrives again", func() bool {
		return p.ear.Receives(p.Text, time.Second, func() { nettest.SendFrame(t, web.ns, "own", p.Frame()) })
	})
}

// TestPortsNodesNames: traffic from the node is allowed because the node sent it, not because of its source address.
// The address of an allowed pod is trusted: preventing spoofing is the source guard's task.
func TestPortsNodesNames(t *testing.T) {
	w := newWorld(t)
	_, _ = nettest.Try(nil, "sysctl", "-qw", "net.ipv6.conf.all.forwarding=1")
	w.manifest("fast", onlyFastFriends)
	w.start()
	routed := w.pod("shop/other", "app: other")
	web, friend, other := w.ported(w.pod("shop/web", "app: web"), 2), w.ported(w.pod("shop/friend", `friend: "yes"`), 3),
		w.ported(routed, 4)
	ear := nettest.Listen(t, web.ns, 4000)
	hears := func(as netip.Addr, limit time.Duration) bool {
		d := w.raw(other, web, as, "as "+as.String())
		return ear.Receives(d.Text, limit, func() { nettest.SendFrame(t, other.ns, "net1", d.Frame()) })
	}
	for _, addr := range friend.Addrs {
		w.eventually("a friend's address is let in", func() bool { return hears(addr, time.Second) })
	}
	for _, s := range []string{"10.8.0.1", "10.9.0.1", "fd00:8::1", "10.8.0.4", "fd00:8::4"} {
		if hears(netip.MustParseAddr(s), 300*time.Millisecond) {
			t.Errorf("a pod that is denied is let in as %s", s)
		}
		d := w.raw(other, web, netip.MustParseAddr(s), "with the bridge's MAC as "+s)
		d.SrcMAC = nettest.MAC(t, nil, "pbr0")
		if ear.Receives(d.Text, 300*time.Millisecond, func() { nettest.SendFrame(t, other.ns, "net1", d.Frame()) }) {
			t.Errorf("a pod that is denied is let in as %s with the bridge's MAC", s)
		}
	}
	// IPv6 routes a packet with the router's own source address.
	d := w.raw(other, web, netip.MustParseAddr("fd00:8::1"), "routed")
	d.SrcMAC, d.DstMAC = nettest.MAC(t, routed.ns, "eth0"), nettest.MAC(t, nil, routed.link)
	if ear.Receives(d.Text, 300*time.Millisecond, func() { nettest.SendFrame(t, routed.ns, "eth0", d.Frame()) }) {
		t.Error("what the node routes is let in as what it sends")
	}
	for _, to := range web.Addrs {
		c, err := net.Dial("udp", netip.AddrPortFrom(to, 4000).String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if !ear.Receives("from the node", 15*time.Second, func() { _, _ = c.Write([]byte("from the node")) }) {
			t.Errorf("the node does not reach its own pod at %s", to)
		}
	}
}

// TestPortsUpgrade: the table that an earlier agent has written into a pod remains until the port's rules are written,
// and not longer.
func TestPortsUpgrade(t *testing.T) {
	w := newWorld(t)
	nettest.NeedBridgeNetfilter(t)
	w.start()
	web, friend := w.ported(w.pod("shop/web", "app: web"), 2), w.ported(w.pod("shop/friend", `friend: "yes"`), 3)
	w.serve(web, 80)
	w.eventually("the bridge carries packets", func() bool { return reaches(friend.ns, web, 80) })
	w.halt()
	nettest.Run(
		t, web.ns, "nft",
		`add table inet weft-policy; add chain inet weft-policy ingress { type filter hook input priority -4; }; add rule inet weft-policy ingress iifname "net1" drop`,
	)
	tables := func() string { return nettest.Run(t, web.ns, "nft", "list", "tables") }
	leave := occupy(t, nil, "bridge weft-policy")
	w.eventually("the ports' table is another program's", func() bool {
		return strings.Contains(ruleset(), "table bridge weft-policy")
	})
	w.manifest("fast", onlyFastFriends)
	w.start()
	w.eventually("it is tried", func() bool {
		return strings.Contains(w.log.String(), "policies of the node's bridges could not be written")
	})
	if !strings.Contains(tables(), "weft-policy") {
		t.Error("the pod's own table goes before the port's is there")
	}
	leave()
	w.eventually("the port's table takes its place", func() bool { return !strings.Contains(tables(), "weft-policy") })
	w.eventually("a friend is let in", func() bool { return reaches(friend.ns, web, 80) })
	if _, err := os.Stat("/proc/sys/net/bridge"); err == nil &&
		strings.Contains(w.log.String(), "bridge netfilter is not available") {
		t.Error(w.log.String())
	}
}
