// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/reconcile"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// soon limits a repair in these tests, on a busy host; the log has its real duration.
const soon = time.Minute

// publish has a node say how it is reached, as flannel does; nil takes it back.
func (c *cluster) publish(name string, words map[string]string) {
	c.t.Helper()
	annotations := map[string]string{}
	for k, v := range words {
		annotations["flannel.alpha.coreos.com/"+k] = v
	}
	if _, err := c.store.Modify(c.t.Context(), store.NodeKey(name), store.Annotate(annotations)); err != nil {
		c.t.Fatal(err)
	}
}

// spec replaces a node's prefixes.
func (c *cluster) spec(name string, cidrs ...any) {
	c.t.Helper()
	_, err := c.store.Modify(c.t.Context(), store.NodeKey(name), func(fields map[string]any) error {
		fields["spec"] = map[string]any{"podCIDRs": cidrs}
		return nil
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

// What a peer publishes is followed, and what it was before is gone.
func TestPeerChanges(t *testing.T) {
	nettest.Need(t, "vxlan")
	c := newMesh(t, mesh.Config{Backend: "vxlan"})
	n1 := c.nodes[0]
	within(t, soon, "routes to all", func() bool { return strings.Count(n1.routes(t), " via ") == 4 })
	first := `{"VNI":1,"VtepMAC":"12:c6:65:89:b4:e3"}`
	for _, step := range []struct {
		what  string
		do    func()
		want  []string
		never []string
	}{
		{
			"flannel's MAC address",
			func() {
				c.publish("n3", map[string]string{
					"kube-subnet-manager": "true", "backend-type": "vxlan", "backend-data": first, "public-ip": "192.168.0.3",
				})
			},
			[]string{"12:c6:65:89:b4:e3 dst 192.168.0.3", "10.244.3.0 lladdr 12:c6:65:89:b4:e3"},
			nil,
		},
		{
			"another MAC address",
			func() {
				c.publish("n3", map[string]string{"backend-data": `{"VNI":1,"VtepMAC":"12:c6:65:89:b4:e4"}`})
			},
			[]string{"12:c6:65:89:b4:e4 dst 192.168.0.3", "10.244.3.0 lladdr 12:c6:65:89:b4:e4"},
			[]string{"12:c6:65:89:b4:e3"},
		},
		{
			"another public address",
			func() { c.publish("n3", map[string]string{"public-ip": "192.168.0.33"}) },
			[]string{"12:c6:65:89:b4:e4 dst 192.168.0.33"},
			[]string{"dst 192.168.0.3 "},
		},
		{
			"another podCIDR",
			func() { c.spec("n3", "10.244.7.0/24", "fd00:244:3::/64") },
			[]string{"10.244.7.0/24 via 10.244.7.0 dev flannel.1", "10.244.7.0 lladdr 12:c6:65:89:b4:e4"},
			[]string{"10.244.3.0"},
		},
		{
			"another backend",
			func() {
				c.publish("n3", map[string]string{"backend-type": "host-gw", "backend-data": "null", "public-ip": "192.168.0.3"})
			},
			[]string{"10.244.7.0/24 via 192.168.0.3 dev eth0", "10.244.2.0/24 via 10.244.2.0 dev flannel.1"},
			[]string{"12:c6:65:89:b4:e4", "10.244.7.0 lladdr"},
		},
	} {
		step.do()
		within(t, soon, step.what, func() bool {
			now := n1.tunnels(t)
			for _, w := range step.want {
				if !strings.Contains(now, w) {
					return false
				}
			}
			for _, w := range step.never {
				if strings.Contains(now, w) {
					return false
				}
			}
			return true
		})
	}
}

// Each peer is reached by the backend that it publishes, both ways.
func TestMixed(t *testing.T) {
	nettest.Need(t, "vxlan")
	c := newMesh(t, mesh.Config{Backend: "vxlan"})
	n3 := c.nodes[2]
	n3.stop()
	n3.mesh = mesh.Config{Backend: "host-gw"}
	for _, m := range c.nodes {
		backend := "vxlan"
		if m == n3 {
			backend = "host-gw"
		}
		c.publish(m.name, map[string]string{"kube-subnet-manager": "true", "backend-type": backend})
	}
	n3.start(c)
	within(t, soon, "n3 is reached without a tunnel", func() bool {
		return strings.Contains(c.nodes[0].routes(t), "10.244.3.0/24 via 192.168.0.3 dev eth0")
	})
	within(t, soon, "n3 has a tunnel to n1", func() bool {
		return strings.Contains(n3.routes(t), "10.244.1.0/24 via 10.244.1.0 dev flannel.1")
	})
	c.allReach(soon)
}

// TestFlushed: a table that another program deletes, empties or flushes is restored, and so is IP forwarding.
func TestFlushed(t *testing.T) {
	nettest.Need(t, "vxlan")
	c := newMesh(t, mesh.Config{Backend: "vxlan"})
	n1 := c.nodes[0]
	within(t, soon, "routes to all", func() bool { return strings.Count(n1.routes(t), " via ") == 4 })
	check := func() string {
		out, _ := nettest.Try(n1.node, "nft", "list", "table", "inet", mesh.NotrackTable)
		guard, _ := nettest.Try(n1.node, "nft", "-s", "list", "table", "inet", mesh.GuardTable)
		return out + guard + nettest.Run(t, n1.node, "sysctl", "net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding")
	}
	settled(n1)
	want := check()
	if strings.Count(want, "udp dport 8472 fib") != 2 {
		t.Fatalf("packets of tunnels are tracked:\n%s", want)
	}
	for _, harm := range []string{
		"nft flush ruleset", "nft delete table inet weft-notrack", "nft flush chain inet weft-notrack output",
		"nft delete table inet weft-mesh", "nft flush chain inet weft-mesh forward", "sysctl -qw net.ipv4.ip_forward=0",
		"sysctl -qw net.ipv6.conf.all.forwarding=0",
	} {
		settled(n1)
		nettest.Run(t, n1.node, strings.Fields(harm)...)
		within(t, soon, "repaired after "+harm, func() bool { return check() == want })
	}
	n1.stop()
	n1.mesh = mesh.Config{}
	n1.start(c)
	within(t, soon, "the table goes with the tunnels", func() bool {
		return !strings.Contains(nettest.Run(t, n1.node, "nft", "list", "tables"), mesh.NotrackTable)
	})
}

// settled waits until the pass that follows our own writes is over: what is repaired then was seen by itself.
func settled(m *testNode) {
	writes, calm := -1, 0
	for tries := 0; calm < 20 && tries < 3000; tries++ {
		if calm++; m.conn.Writes() != writes {
			writes, calm = m.conn.Writes(), 0
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestNotTracked: outer packets are not in conntrack, pods' packets are.
func TestNotTracked(t *testing.T) {
	nettest.Need(t, "vxlan")
	c := newMesh(t, mesh.Config{Backend: "vxlan"})
	c.allReach(soon)
	n1, n2 := c.nodes[0], c.nodes[1]
	nettest.Run(t, n1.node, "nft", "add table inet look; add chain inet look in { type filter hook input priority 0; };"+
		"add chain inet look out { type filter hook output priority 0; }; add chain inet look pass { type filter hook forward priority 0; };"+
		"add rule inet look in udp dport 8472 ct state new,established counter comment bad; add rule inet look out udp dport 8472 ct state new,established counter comment bad;"+
		"add rule inet look in udp dport 8472 ct state untracked counter comment good; add rule inet look out udp dport 8472 ct state untracked counter comment good;"+
		"add rule inet look pass ip protocol icmp ct state new,established counter comment good")
	for _, addr := range n2.addrs {
		nettest.Run(t, n1.pod, "ping", "-n", "-c3", "-i0.2", "-W20", addr)
	}
	for _, line := range strings.Split(nettest.Run(t, n1.node, "nft", "list", "table", "inet", "look"), "\n") {
		if none := strings.Contains(line, "packets 0 "); strings.Contains(line, "bad") && !none ||
			strings.Contains(line, "good") && none {
			t.Errorf("connection tracking: %s", line)
		}
	}
}

// A node that left while the agent was down, its tunnels and what flannel left of it, are gone after the start; another
// one's things stay.
func TestRestartTunnels(t *testing.T) {
	nettest.Need(t, "vxlan")
	c := newMesh(t, mesh.Config{Backend: "vxlan"})
	n1 := c.nodes[0]
	within(t, soon, "routes to all", func() bool { return strings.Count(n1.routes(t), " via ") == 4 })
	n1.stop()
	if strings.Count(n1.routes(t), " via ") != 4 {
		t.Error("routes went with the agent; packets of pods must go on")
	}
	foreign := []string{
		"10.9.0.0/24 via 192.168.0.3 dev eth0", "10.9.1.0/24 via 10.244.2.0 dev flannel.1 onlink",
		"10.9.2.0/24 dev flannel.1",
	}
	for _, r := range foreign {
		ip(t, n1.node, "route add "+r)
	}
	ip(t, n1.node, "link add flannel.9 type vxlan id 9 dstport 4789 local 192.168.0.1")
	if err := c.store.Delete(t.Context(), store.NodeKey("n3"), ""); err != nil {
		t.Fatal(err)
	}
	n1.start(c)
	within(t, soon, "nothing of n3 is left", func() bool {
		now := n1.tunnels(t)
		return !strings.Contains(now, "192.168.0.3 ") && !strings.Contains(now, "fd00::3") &&
			!strings.Contains(now, "10.244.3.") && !strings.Contains(now, "fd00:244:3:")
	})
	all := nettest.Run(t, n1.node, "ip", "route", "show") + nettest.Run(t, n1.node, "ip", "link")
	for _, want := range []string{"10.9.0.0/24 via", "10.9.1.0/24 via", "10.9.2.0/24 dev", "flannel.9"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q was taken away:\n%s", want, all)
		}
	}
}

// A node that flannel ran on is taken over: the device, its address and the way to live peers stay, and no packet is
// lost.
func TestTakenOver(t *testing.T) {
	nettest.Need(t, "vxlan")
	c := newMesh(t, mesh.Config{Backend: "vxlan"})
	n1, n2 := c.nodes[0], c.nodes[1]
	within(t, soon, "routes to all", func() bool { return strings.Count(n1.routes(t), " via ") == 4 })
	n1.stop()
	const own = "12:c6:65:89:b4:e1"
	ip(t, n1.node, "link del flannel.1", "link add flannel.1 address "+own+
		" mtu 1450 type vxlan id 1 dstport 8472 local 192.168.0.1 dev eth0 nolearning",
		"addr add 10.244.1.0/32 dev flannel.1", "link set flannel.1 up")
	fields := strings.Fields(
		strings.SplitN(nettest.Run(t, n2.node, "ip", "-o", "link", "show", "flannel.1"), "link/ether", 2)[1],
	)
	for i, far := range []string{fields[0], "12:c6:65:89:b4:e3", "12:c6:65:89:b4:e9"} {
		n := []int{2, 3, 9}[i]
		nettest.Run(t, n1.node, "bridge", "fdb", "add", far, "dev", "flannel.1", "dst",
			fmt.Sprintf("192.168.0.%d", n+10*(i%2)))
		ip(t, n1.node, fmt.Sprintf("neigh add 10.244.%d.0 lladdr %s dev flannel.1 nud permanent", n, far),
			fmt.Sprintf("route add 10.244.%d.0/24 via 10.244.%d.0 dev flannel.1 onlink", n, n))
	}
	c.publish("n1", map[string]string{
		"kube-subnet-manager": "true", "backend-type": "vxlan", "backend-data": `{"VNI":1,"VtepMAC":"` + own + `"}`,
		"public-ip": "192.168.0.1",
	})
	within(t, soon, "n2 knows n1's end", func() bool { return strings.Contains(n2.tunnels(t), own) })
	nettest.Run(t, n1.pod, "ping", "-n", "-c1", "-W20", n2.addrs[0])
	before := strings.Fields(nettest.Run(t, n1.node, "ip", "-o", "link", "show", "flannel.1"))[0]
	pinged := make(chan string, 1)
	go func() {
		out, _ := nettest.Try(n1.pod, "ping", "-n", "-i0.01", "-c150", "-W5", n2.addrs[0])
		pinged <- out
	}()
	n1.start(c)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(n1.tunnels(t) + nettest.Run(t, n1.node, "ip", "route"))
		}
	})
	within(t, soon, "nothing of flannel is left", func() bool {
		now := n1.tunnels(t)
		return strings.Contains(now, own) && !strings.Contains(now, "10.244.9.0") && !strings.Contains(now, "b4:e9") &&
			!strings.Contains(now, "b4:e3") &&
			!strings.Contains(nettest.Run(t, n1.node, "ip", "route", "show", "proto", "boot"), "flannel")
	})
	if out := <-pinged; !strings.Contains(out, "150 received") {
		t.Errorf("packets were lost:\n%s", out)
	}
	if after := strings.Fields(nettest.Run(t, n1.node, "ip", "-o", "link", "show", "flannel.1"))[0]; after != before {
		t.Errorf("the device was made anew: index %s, was %s", after, before)
	}
	s, err := reconcile.ReadStatus(n1.state)
	if err != nil || !strings.Contains(s.Topology.Publish.Data, own) {
		t.Errorf("published is %+v, %v", s.Topology.Publish, err)
	}
}

// The same without tunnels: routes to peers are weft's from then on, those to nodes that are gone are gone, and routes
// that are not flannel's stay.
func TestTakenOverRoutes(t *testing.T) {
	c := newMesh(t, mesh.Config{})
	n1 := c.nodes[0]
	within(t, soon, "routes to all", func() bool { return strings.Count(n1.routes(t), " via ") == 4 })
	want := n1.routes(t)
	n1.stop()
	ip(t, n1.node, "route flush proto 119", "-6 route flush proto 119")
	theirs := []string{
		"10.244.2.0/24 via 192.168.0.2 dev eth0", "10.244.3.0/24 via 192.168.0.33 dev eth0",
		"10.244.9.0/24 via 192.168.0.9 dev eth0",
		"fd00:244:2::/64 via fd00::2 dev eth0", "fd00:244:9::/64 via fd00::9 dev eth0",
	}
	others := []string{
		"10.9.0.0/24 via 192.168.0.2 dev eth0", "10.244.8.0/25 via 192.168.0.2 dev eth0",
		"10.244.7.0/24 via 192.168.0.2 dev eth0 proto static",
		"10.244.2.0/24 via 192.168.0.2 dev eth0 metric 7", "10.244.1.77 dev veth0", "fd09::/64 via fd00::2 dev eth0",
	}
	for _, r := range append(theirs, others...) {
		if strings.HasPrefix(r, "fd") {
			r = "-6 route add " + r
		} else {
			r = "route add " + r
		}
		nettest.IP(t, n1.node, r)
	}
	n1.mesh.Networks = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/32")}
	n1.start(c)
	within(t, soon, "weft's own routes", func() bool { return n1.routes(t) == want })
	check := func() string {
		return nettest.Run(t, n1.node, "ip", "-4", "route", "show") + nettest.Run(t, n1.node, "ip", "-6", "route", "show")
	}
	within(t, soon, "flannel's routes are gone", func() bool {
		now := check()
		return !strings.Contains(now, "10.244.9.0") && !strings.Contains(now, "192.168.0.33") &&
			!strings.Contains(now, "fd00:244:9::") &&
			!strings.Contains(now, "10.244.2.0/24 via 192.168.0.2 dev eth0 \n")
	})
	for _, r := range []string{"10.9.0.0/24", "10.244.8.0/25", "10.244.7.0/24", "metric 7", "10.244.1.77", "fd09::/64"} {
		if now := check(); !strings.Contains(now, r) {
			t.Errorf("%s was taken away:\n%s", r, now)
		}
	}
}
