// SPDX-License-Identifier: Apache-2.0

package fastpath_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/kernel/fastpath"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// world is a node with two pods, and a router behind which there is a third one.
type world struct {
	node, router, a, b, c *netns.NS
	path                  *fastpath.Path
	uplink                string
	tap                   bool // b is a guest with a tap on the node
}

// The pods' addresses.
const (
	addrA, addrB, addrC = "10.0.0.1", "10.0.0.2", "10.0.1.3"
	sixA, sixB, sixC    = "fd00::1", "fd00::2", "fd00:1::3"
)

func ip(t testing.TB, ns *netns.NS, lines ...string) {
	t.Helper()
	for _, l := range lines {
		nettest.Run(t, ns, append([]string{"ip"}, strings.Fields(l)...)...)
	}
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{
		uplink: "eth0", node: nettest.NS(t, "node"), router: nettest.NS(t, "router"), a: nettest.NS(t, "a"), b: nettest.NS(t, "b"), c: nettest.NS(t, "c"),
	}
	ip(t, w.node, "link set lo up", "link add eth0 type veth peer name eth0 netns "+w.router.Path(), "link set eth0 up",
		"addr add 172.16.0.1/24 dev eth0", "addr add fd01::1/64 dev eth0 nodad")
	ip(t, w.router, "link set eth0 up", "addr add 172.16.0.2/24 dev eth0", "addr add fd01::2/64 dev eth0 nodad",
		"route add 10.0.0.0/24 via 172.16.0.1", "route add fd00::/64 via fd01::1")
	ip(t, w.node, "route add 10.0.1.0/24 via 172.16.0.2", "route add fd00:1::/64 via fd01::2")
	for _, p := range []struct {
		host, pod *netns.NS
		name      string
		four, six string
	}{
		{w.node, w.a, "calia", addrA, sixA}, {w.node, w.b, "calib", addrB, sixB}, {w.router, w.c, "calic", addrC, sixC},
	} {
		ip(t, p.host, "link add "+p.name+" address ee:ee:ee:ee:ee:ee type veth peer name eth0 netns "+p.pod.Path(), "link set "+p.name+" up")
		ip(t, p.pod, "link set lo up", "link set eth0 up", "addr add "+p.four+"/32 dev eth0", "addr add "+p.six+"/128 dev eth0 nodad",
			"route add 169.254.1.1 dev eth0", "route add default via 169.254.1.1", "neigh add 169.254.1.1 lladdr ee:ee:ee:ee:ee:ee dev eth0",
			"route add fe80::1 dev eth0", "-6 route add default via fe80::1 dev eth0", "neigh add fe80::1 lladdr ee:ee:ee:ee:ee:ee dev eth0")
		mac := nettest.MAC(t, p.pod, "eth0").String()
		ip(t, p.host, "route add "+p.four+" dev "+p.name, "-6 route add "+p.six+" dev "+p.name,
			"neigh add "+p.four+" lladdr "+mac+" dev "+p.name, "neigh add "+p.six+" lladdr "+mac+" dev "+p.name)
	}
	for _, ns := range []*netns.NS{w.node, w.router} {
		nettest.Run(t, ns, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	}
	nettest.Run(t, w.node, "nft", `add table inet t; add chain inet t f { type filter hook forward priority 0; };
		add rule inet t f ct state established accept`)
	liberal(t, w.node)
	return w
}

func liberal(t testing.TB, ns *netns.NS) {
	t.Helper()
	nettest.Run(t, ns, "sysctl", "-qw", "net.netfilter.nf_conntrack_tcp_be_liberal=1")
}

const long = time.Hour // no packet takes the slow path because of time

// start loads the path of the node for all its links.
func (w *world) start(t testing.TB, interval time.Duration) {
	t.Helper()
	p, err := fastpath.Load(w.node)
	if err != nil {
		nettest.Skip(t, "no fast path: "+err.Error())
	}
	w.path = p
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	w.set(t)
	if err := p.Enable(true, interval, interval); err != nil {
		t.Fatal(err)
	}
}

func (w *world) links() []fastpath.Link {
	addrs := func(of ...string) (out []netip.Addr) {
		for _, a := range of {
			out = append(out, netip.MustParseAddr(a))
		}
		return out
	}
	return []fastpath.Link{
		{Name: w.uplink, How: fastpath.ToNeighbor},
		{Name: "calia", How: fastpath.ToPeer, Addrs: addrs(addrA, sixA)}, {Name: "calib", How: w.tapOf(), Addrs: addrs(addrB, sixB)},
	}
}

func (w *world) set(t testing.TB) {
	t.Helper()
	left, err := w.path.Set(t.Context(), w.links())
	if err != nil || len(left) > 0 {
		t.Fatal(left, err)
	}
}

func (w *world) packets(t testing.TB) uint64 {
	t.Helper()
	c, err := w.path.Counters()
	if err != nil {
		t.Fatal(err)
	}
	return c.Packets
}

// stream is a TCP connection, or a flow of UDP, to an echo server.
type stream struct {
	t testing.TB
	net.Conn
}

// serve echoes in a namespace until the test ends.
func serve(t testing.TB, ns *netns.NS, network, addr string) {
	t.Helper()
	var err error
	var l net.Listener
	var p net.PacketConn
	err = errors.Join(err, ns.Do(func() (err error) {
		if network == "tcp" {
			l, err = net.Listen(network, addr)
		} else {
			p, err = net.ListenPacket(network, addr)
		}
		return err
	}))
	if err != nil {
		t.Fatal(err)
	}
	if l == nil {
		t.Cleanup(func() { _ = p.Close() })
		go func() {
			b := make([]byte, 1<<16)
			for {
				n, from, err := p.ReadFrom(b)
				if err != nil {
					return
				}
				_, _ = p.WriteTo(b[:n], from)
			}
		}()
		return
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
}

func dial(t testing.TB, ns *netns.NS, network, addr string) *stream {
	t.Helper()
	s := &stream{t: t}
	err := ns.Do(func() (err error) {
		s.Conn, err = net.DialTimeout(network, addr, time.Minute)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// echo sends some bytes and receives them; false if they do not arrive within the limit.
func (s *stream) echo(size int, limit time.Duration) bool {
	s.t.Helper()
	b := bytes.Repeat([]byte("x"), size)
	if err := s.SetDeadline(time.Now().Add(limit)); err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.Write(b); err != nil {
		return false
	}
	_, err := io.ReadFull(s, b)
	return err == nil
}

// must echoes n times.
func (s *stream) must(n, size int) {
	s.t.Helper()
	for range n {
		if !s.echo(size, 20*time.Second) {
			s.t.Fatal("nothing arrives")
		}
	}
}

// Flows of TCP and UDP are learned, within the node and to another one, in both families and directions.
func TestLearned(t *testing.T) {
	w := newWorld(t)
	w.start(t, long)
	for _, c := range []struct {
		name     string
		from, to *netns.NS
		addr     string
	}{
		{"same node", w.a, w.b, addrB}, {"same node, IPv6", w.a, w.b, sixB}, {"to another node", w.a, w.c, addrC},
		{"to another node, IPv6", w.a, w.c, sixC}, {"from another node", w.c, w.a, addrA}, {"from another node, IPv6", w.c, w.a, sixA},
	} {
		for _, network := range []string{"tcp", "udp"} {
			t.Run(c.name+" "+network, func(t *testing.T) {
				addr := net.JoinHostPort(c.addr, "7000")
				serve(t, c.to, network, addr)
				s := dial(t, c.from, network, addr)
				s.must(5, 100)
				before, seen := w.packets(t), forwarded(t, w.node)
				s.must(100, 100)
				if n := w.packets(t) - before; n < 200 {
					t.Errorf("%d packets of 200 took the fast path", n)
				}
				if n := forwarded(t, w.node) - seen; n > 20 {
					t.Errorf("the stack forwarded %d packets", n)
				}
			})
		}
	}
}

// forwarded returns how many packets the node's stack has forwarded.
func forwarded(t *testing.T, ns *netns.NS) (n int) {
	t.Helper()
	add := func(text string) {
		var one int
		if _, err := fmt.Sscan(text, &one); err != nil {
			t.Fatal(err)
		}
		n += one
	}
	var names []string
	for line := range strings.Lines(nettest.Run(t, ns, "cat", "/proc/net/snmp", "/proc/net/snmp6")) {
		f := strings.Fields(line)
		switch {
		case len(f) == 2 && f[0] == "Ip6OutForwDatagrams":
			add(f[1])
		case len(f) > 2 && f[0] == "Ip:" && names == nil:
			names = f
		case len(f) > 2 && f[0] == "Ip:":
			add(f[slices.Index(names, "ForwDatagrams")])
		}
	}
	return n
}

// overVXLAN makes the routes between the nodes those over a VXLAN, whose device takes the uplink's place in the path.
func (w *world) overVXLAN(t testing.TB) {
	t.Helper()
	nettest.Need(t, "vxlan")
	macs := map[*netns.NS]string{w.node: "02:00:00:00:00:01", w.router: "02:00:00:00:00:02"}
	for _, n := range []struct {
		ns, far                    *netns.NS
		local, remote, pods        string
		farPods6, farVTEP, ownVTEP string
	}{
		{ns: w.node, far: w.router, local: "172.16.0.1", remote: "172.16.0.2", ownVTEP: "10.0.0.0", farVTEP: "10.0.1.0", pods: "10.0.1.0/24", farPods6: "fd00:1::/64"},
		{ns: w.router, far: w.node, local: "172.16.0.2", remote: "172.16.0.1", ownVTEP: "10.0.1.0", farVTEP: "10.0.0.0", pods: "10.0.0.0/24", farPods6: "fd00::/64"},
	} {
		ip(t, n.ns, "link add flannel.1 address "+macs[n.ns]+" type vxlan id 1 dstport 8472 nolearning local "+n.local,
			"link set flannel.1 mtu 1430 up", "addr add "+n.ownVTEP+"/32 dev flannel.1",
			"neigh add "+n.farVTEP+" lladdr "+macs[n.far]+" dev flannel.1", "route replace "+n.pods+" via "+n.farVTEP+" dev flannel.1 onlink",
			"neigh add fe80::99 lladdr "+macs[n.far]+" dev flannel.1", "-6 route replace "+n.farPods6+" via fe80::99 dev flannel.1 onlink")
		nettest.Run(t, n.ns, "bridge", "fdb", "add", macs[n.far], "dev", "flannel.1", "dst", n.remote)
	}
	w.uplink = "flannel.1"
}

// Flows over a VXLAN are learned at its device.
func TestVXLAN(t *testing.T) {
	w := newWorld(t)
	w.overVXLAN(t)
	w.start(t, long)
	for _, c := range []struct {
		from, to *netns.NS
		addr     string
	}{{w.a, w.c, addrC}, {w.a, w.c, sixC}, {w.c, w.b, addrB}, {w.c, w.b, sixB}} {
		for _, network := range []string{"tcp", "udp"} {
			s := w.learn(t, network, c.from, c.to, c.addr)
			seen := forwarded(t, w.node)
			if s.must(50, 1000); forwarded(t, w.node)-seen > 10 {
				t.Errorf("%s to %s: the stack forwards the packets", network, c.addr)
			}
			if network == "tcp" { // also with segments that the link's driver cuts
				s.must(1, 300_000)
			}
		}
	}
}
