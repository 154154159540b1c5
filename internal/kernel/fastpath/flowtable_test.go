// SPDX-License-Identifier: Apache-2.0

package fastpath_test

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/kernel/fastpath"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/nettest/forge"
	"github.com/weft-net/weft/internal/state"
)

// flows is a world whose node has a flowtable.
type flows struct {
	*world
	table *fastpath.Flowtable
}

// newFlows returns a world without nf_conntrack_tcp_be_liberal: the kernel sets it for the connections in the flowtable.
func newFlows(t testing.TB) *flows {
	t.Helper()
	return flowsOf(t, newWorld(t))
}

// flowsOf lets the node of a world have a flowtable.
func flowsOf(t testing.TB, w *world) *flows {
	t.Helper()
	nettest.Run(t, w.node, "sysctl", "-qw", "net.netfilter.nf_conntrack_tcp_be_liberal=0")
	f, err := fastpath.LoadFlowtable(w.node)
	if err != nil {
		nettest.Skip(t, "no flowtables: "+err.Error())
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	out := &flows{world: w, table: f}
	out.set(t)
	if err := f.Enable(true, 0, 0); err != nil {
		t.Fatal(err)
	}
	return out
}

func (f *flows) set(t testing.TB) {
	t.Helper()
	links := f.links()
	for i, ns := range []*netns.NS{nil, f.a, f.b} {
		if ns != nil {
			links[i].MACs = []string{"02:00:00:00:00:77", nettest.MAC(t, ns, "eth0").String()}
		}
	}
	left, err := f.table.Set(t.Context(), links)
	if err != nil || len(left) > 0 {
		t.Fatal(left, err)
	}
}

// offloaded returns how many connections are in the flowtable.
func (f *flows) offloaded(t testing.TB) int {
	t.Helper()
	return strings.Count(tracked(t, f.node), "[OFFLOAD]")
}

// tracked lists the node's connections.
func tracked(t testing.TB, ns *netns.NS) string {
	t.Helper()
	return nettest.Run(t, ns, "conntrack", "-L", "-f", "ipv4") + nettest.Run(t, ns, "conntrack", "-L", "-f", "ipv6")
}

// slow checks that the stack forwards all packets of a stream, and fast that it forwards nearly none.
func (f *flows) slow(t *testing.T, s *stream) {
	t.Helper()
	seen := forwarded(t, f.node)
	if s.must(20, 100); forwarded(t, f.node)-seen < 40 {
		t.Errorf("the stack forwarded %d packets of 40", forwarded(t, f.node)-seen)
	}
}

func (f *flows) fast(t *testing.T, s *stream) {
	t.Helper()
	s.must(5, 100)
	seen := forwarded(t, f.node)
	if s.must(20, 100); forwarded(t, f.node)-seen > 4 {
		t.Errorf("the stack forwarded %d packets of 40", forwarded(t, f.node)-seen)
	}
}

// dial connects to a server that it starts, at port 7000 unless the address has another one.
func (f *flows) dial(t *testing.T, network string, from, to *netns.NS, addr string) *stream {
	t.Helper()
	if _, _, err := net.SplitHostPort(addr); err != nil {
		addr = net.JoinHostPort(addr, "7000")
	}
	serve(t, to, network, addr)
	return dial(t, from, network, addr)
}

// Flows of TCP and UDP take the flowtable, within the node and to another one, in both families and directions; the
// kernel counts their packets as packets of their connections. Switched off, it leaves no table.
func TestFlowtable(t *testing.T) {
	f := newFlows(t)
	if err := f.table.Enable(false, 0, 0); err != nil {
		t.Fatal(err)
	}
	if out := nettest.Run(t, f.node, "nft", "list", "ruleset"); strings.Contains(out, fastpath.FlowTable) {
		t.Errorf("tables are left:\n%s", out)
	}
	serve(t, f.b, "tcp", addrB+":7001")
	off := dial(t, f.a, "tcp", addrB+":7001")
	f.slow(t, off)
	if err := f.table.Enable(true, 0, 0); err != nil {
		t.Fatal(err)
	}
	f.fast(t, off)
	nettest.Run(t, f.node, "sysctl", "-qw", "net.netfilter.nf_conntrack_acct=1")
	for _, c := range []struct {
		name, network string
		from, to      *netns.NS
		addr          string
	}{
		{"same node", "tcp", f.a, f.b, addrB}, {"same node, IPv6", "udp", f.a, f.b, sixB}, {"to another node", "udp", f.a, f.c, addrC},
		{"to another node, IPv6", "tcp", f.a, f.c, sixC}, {"from another node", "tcp", f.c, f.a, addrA},
		{"from another node, IPv6", "udp", f.c, f.a, sixA},
	} {
		t.Run(c.name+" "+c.network, func(t *testing.T) {
			s := f.dial(t, c.network, c.from, c.to, c.addr)
			f.fast(t, s)
			if c.network == "tcp" {
				s.must(1, 300_000)
			}
			if n := f.counted(t, s); n < 50 {
				t.Errorf("conntrack counts %d packets of 50", n)
			}
		})
	}
}

// counted returns the packets of a stream in both directions, as conntrack counts them.
func (f *flows) counted(t *testing.T, s *stream) (n int) {
	t.Helper()
	port := fmt.Sprintf("sport=%d ", netip.MustParseAddrPort(s.LocalAddr().String()).Port())
	for line := range strings.Lines(tracked(t, f.node)) {
		if !strings.Contains(line, port) {
			continue
		}
		for word := range strings.FieldsSeq(line) {
			var one int
			if c, _ := fmt.Sscanf(word, "packets=%d", &one); c == 1 {
				n += one
			}
		}
	}
	return n
}

// A flow whose entry of conntrack is deleted takes the slow path with the next packet, and a rule ends it there. A rule
// that stops one direction alone keeps the flow out of the flowtable after a flush.
func TestFlowtableEnds(t *testing.T) {
	f := newFlows(t)
	for _, network := range []string{"tcp", "udp"} {
		s := f.dial(t, network, f.a, f.b, addrB)
		f.fast(t, s)
		nettest.Run(t, f.node, "nft", "insert rule inet t f ip saddr "+addrA+" ct state new counter drop")
		if !s.echo(100, 20*time.Second) {
			t.Fatalf("%s: a connection ends that its rules allow", network)
		}
		host, err := kernel.Dial(f.node)
		if err != nil {
			t.Fatal(err)
		}
		own := netip.MustParseAddrPort(s.LocalAddr().String())
		gone, err := host.FlushConntrack(func(c state.Connection) bool { return c.Src == own })
		if err != nil || len(gone) != 1 {
			t.Fatal(gone, err)
		}
		_ = host.Close()
		for range 10 {
			if s.echo(100, 20*time.Millisecond) {
				t.Errorf("%s: the flow goes on without its entry", network)
			}
		}
		nettest.Run(t, f.node, "nft", "flush chain inet t f")
		_, _ = nettest.Try(f.node, "conntrack", "-D", "-s", addrA)
		_ = s.Close()
	}
	// B answers though nothing arrives from A.
	var server *net.UDPConn
	if err := f.b.Do(func() (err error) {
		server, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(addrB+":7001")))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	s := dial(t, f.a, "udp", addrB+":7001")
	b := make([]byte, 10)
	to := net.UDPAddrFromAddrPort(s.LocalAddr().(*net.UDPAddr).AddrPort())
	both := func(limit time.Duration) (arrived bool) {
		_, _ = s.Write(b)
		_ = server.SetReadDeadline(time.Now().Add(limit))
		_, _, err := server.ReadFromUDP(b)
		if _, err := server.WriteToUDP(b, to); err != nil {
			t.Fatal(err)
		}
		_ = s.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.ReadFull(s, b); err != nil {
			t.Fatal(err)
		}
		return err == nil
	}
	for range 5 {
		if !both(time.Minute) {
			t.Fatal("a packet does not arrive")
		}
	}
	if f.offloaded(t) == 0 {
		t.Fatal("the flow is not in the flowtable")
	}
	nettest.Run(t, f.node, "nft", "insert rule inet t f ip saddr "+addrA+" counter drop")
	if err := f.table.Flush(); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if both(30 * time.Millisecond) {
			t.Error("a packet that a rule drops arrives")
		}
	}
}

// Flows that the stack translates or marks are not put into the flowtable.
func TestFlowtableChanged(t *testing.T) {
	f := newFlows(t)
	nettest.Run(t, f.node, "nft", `add chain inet t p { type nat hook prerouting priority dstnat; };
		add rule inet t p ip daddr 10.9.9.9 dnat ip to `+addrB+`;
		add chain inet t q { type nat hook postrouting priority srcnat; }; add rule inet t q oifname eth0 ip saddr `+addrA+` masquerade;
		insert rule inet t f tcp sport 7001 meta mark set 7; insert rule inet t f tcp dport 7001 meta mark set 7`)
	serve(t, f.b, "tcp", "0.0.0.0:7000")
	serve(t, f.b, "tcp", addrB+":7001")
	f.fast(t, dial(t, f.a, "tcp", addrB+":7000"))
	f.slow(t, dial(t, f.a, "tcp", "10.9.9.9:7000"))
	f.slow(t, dial(t, f.a, "tcp", addrB+":7001"))
	f.slow(t, f.dial(t, "tcp", f.a, f.c, addrC))
}

// Packets at the end of their lifetime are answered; all others have one less behind the node. What exceeds the MTU of the
// route is answered with it.
func TestFlowtableLifetimeAndMTU(t *testing.T) {
	f := newFlows(t)
	nettest.Run(t, f.c, "nft", `add table inet t; add chain inet t i { type filter hook input priority 0; };
		add rule inet t i meta l4proto udp ip ttl 62 counter comment "good"; add rule inet t i meta l4proto udp ip6 hoplimit 62 counter comment "good";
		add rule inet t i meta l4proto udp ip ttl != 62 counter comment "bad"; add rule inet t i meta l4proto udp ip6 hoplimit != 62 counter comment "bad"`)
	for _, addr := range []string{addrC, sixC} {
		s := f.dial(t, "udp", f.a, f.c, addr)
		f.fast(t, s)
		raw, err := s.Conn.(*net.UDPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if err := raw.Control(func(fd uintptr) {
			if addr == addrC {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TTL, 1)
			} else {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, 1)
			}
		}); err != nil {
			t.Fatal(err)
		}
		if s.echo(100, 50*time.Millisecond) {
			t.Errorf("%s: a packet of lifetime 1 arrives", addr)
		}
	}
	for line := range strings.Lines(nettest.Run(t, f.c, "nft", "list", "chain", "inet", "t", "i")) {
		none := strings.Contains(line, "packets 0 ")
		if strings.Contains(line, `"bad"`) && !none || strings.Contains(line, `"good"`) && none {
			t.Error(line)
		}
	}
	ip(t, f.node, "route change 10.0.1.0/24 via 172.16.0.2 mtu lock 1300", "-6 route change fd00:1::/64 via fd01::2 mtu lock 1300")
	for _, addr := range []string{addrC, sixC} {
		s := f.dial(t, "tcp", f.a, f.c, addr)
		f.fast(t, s)
		s.must(1, 300_000)
		if out := nettest.Run(t, f.a, "ip", "route", "get", addr); !strings.Contains(out, "mtu 1300") {
			t.Errorf("the sender has not learned the MTU: %s", out)
		}
	}
}

// Frames with another MAC than the pod's do not take a flow, and frames with another pod's address are no flow.
func TestFlowtableGuards(t *testing.T) {
	f := newFlows(t)
	mac := nettest.MAC(t, f.a, "eth0")
	gateway := net.HardwareAddr{0xee, 0xee, 0xee, 0xee, 0xee, 0xee}
	for _, family := range []struct{ own, other, to string }{{addrA, addrC, addrB}, {sixA, sixC, sixB}} {
		s := f.dial(t, "udp", f.a, f.b, family.to)
		f.fast(t, s)
		own, to := s.LocalAddr().(*net.UDPAddr).AddrPort(), s.RemoteAddr().(*net.UDPAddr).AddrPort()
		send := func(src net.HardwareAddr, from netip.AddrPort, text string) {
			nettest.SendFrame(t, f.a, "eth0", forge.Ether(gateway, src, forge.KindOf(from.Addr()),
				forge.IP(from.Addr(), to.Addr(), forge.ProtoUDP, forge.UDP(from, to, []byte(text)))))
		}
		answered := func(text string, src net.HardwareAddr, limit time.Duration) bool {
			send(src, own, text)
			b := make([]byte, 100)
			_ = s.SetReadDeadline(time.Now().Add(limit))
			for {
				n, err := s.Read(b)
				if err != nil || string(b[:n]) == text {
					return err == nil
				}
			}
		}
		if !answered("honest", mac, time.Minute) {
			t.Error("its own frame does not arrive")
		}
		if answered("mac", net.HardwareAddr{2, 0, 0, 0, 0, 9}, time.Second) {
			t.Error("a frame with another MAC arrives")
		}
		seen := forwarded(t, f.node)
		for range 20 {
			send(mac, netip.AddrPortFrom(netip.MustParseAddr(family.other), own.Port()), "addr")
		}
		// The kernel of a busy host processes frames after they were sent.
		for end := time.Now().Add(time.Minute); forwarded(t, f.node)-seen < 20 && time.Now().Before(end); {
			time.Sleep(5 * time.Millisecond)
		}
		if n := forwarded(t, f.node) - seen; n < 20 {
			t.Errorf("the stack forwarded %d of 20 packets from another address, where a source guard sees them", n)
		}
	}
}

// queued returns the packets that the qdisc of a link has sent.
func queued(t *testing.T, ns *netns.NS, link string) (n int) {
	t.Helper()
	_, rest, _ := strings.Cut(nettest.Run(t, ns, "tc", "-s", "qdisc", "show", "dev", link), "bytes ")
	if _, err := fmt.Sscan(rest, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Links come and go; a link that was deleted and has come again is a device, too. No other program can change the tables, and
// flows continue when they end.
func TestFlowtableLinks(t *testing.T) {
	f := newFlows(t)
	s := f.dial(t, "tcp", f.a, f.c, addrC)
	f.fast(t, s)
	if out, err := nettest.Try(f.node, "nft", "delete", "table", "inet", fastpath.FlowTable); err == nil {
		t.Errorf("another program deletes the table: %s", out)
	}
	if _, err := fastpath.LoadFlowtable(f.node); err == nil || !strings.Contains(err.Error(), "another process's") {
		t.Errorf("a second flowtable: %v", err)
	}
	nettest.Run(t, f.node, "nft", "flush", "ruleset")
	f.fast(t, s)
	left, err := f.table.Set(t.Context(), f.links()[:2])
	if err != nil || len(left) > 0 || !slices.Equal(f.table.Links(), []string{"calia", "eth0"}) {
		t.Fatal(left, err, f.table.Links())
	}
	f.fast(t, s)
	f.set(t)
	ip(t, f.node, "link del calib")
	if err := f.table.Flush(); err != nil {
		t.Fatal(err)
	}
	f.fast(t, s)
	if left, err = f.table.Set(t.Context(), f.links()); err != nil || len(left) != 1 || left[0].Name != "calib" {
		t.Fatal(left, err)
	}
	if err := f.table.Close(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		out := nettest.Run(t, f.node, "nft", "list", "ruleset")
		if !strings.Contains(out, fastpath.FlowTable) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("tables are left:\n%s", out)
		}
	}
	f.slow(t, s)
	f2, err := fastpath.LoadFlowtable(f.node) // so that the cleanup has something to close
	if err != nil {
		t.Fatal(err)
	}
	f.table = f2
}

// The end of a connection takes the slow path: conntrack knows it.
func TestFlowtableClosing(t *testing.T) {
	f := newFlows(t)
	s := f.dial(t, "tcp", f.a, f.b, addrB)
	f.fast(t, s)
	if err := s.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Fatal(n, err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		out := tracked(t, f.node)
		if strings.Contains(out, "TIME_WAIT") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("conntrack does not know the end:\n%s", out)
		}
	}
}
