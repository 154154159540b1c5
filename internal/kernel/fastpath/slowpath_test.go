// SPDX-License-Identifier: Apache-2.0

package fastpath_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/fastpath"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/nettest/forge"
)

// learn returns a flow that takes the fast path.
func (w *world) learn(t *testing.T, network string, from, to *netns.NS, addr string) *stream {
	t.Helper()
	addr = net.JoinHostPort(addr, "7000")
	serve(t, to, network, addr)
	s := dial(t, from, network, addr)
	s.must(5, 100)
	before := w.packets(t)
	s.must(20, 100)
	if n := w.packets(t) - before; n < 30 {
		t.Fatalf("%d packets of 40 took the fast path", n)
	}
	return s
}

// slow checks that no packet takes the fast path.
func (w *world) slow(t *testing.T, s *stream) {
	t.Helper()
	before := w.packets(t)
	s.must(50, 100)
	if n := w.packets(t) - before; n > 0 {
		t.Errorf("%d packets took the fast path", n)
	}
}

// A rule that denies a flow ends it at once after a flush, and a packet that is dropped teaches nothing.
func TestFlush(t *testing.T) {
	w := newWorld(t)
	w.start(t, long)
	for _, network := range []string{"tcp", "udp"} {
		s := w.learn(t, network, w.a, w.b, addrB)
		// In both directions: if an acknowledgment is dropped, the peer repeats what it has sent.
		nettest.Run(t, w.node, "nft", "insert rule inet t f ip saddr "+addrA+" counter drop; insert rule inet t f ip daddr "+addrA+" counter drop")
		if err := w.path.Flush(); err != nil {
			t.Fatal(err)
		}
		before := w.packets(t)
		for range 10 {
			if s.echo(100, 20*time.Millisecond) {
				t.Errorf("%s: the flow goes on", network)
			}
		}
		if n := w.packets(t) - before; n > 0 {
			t.Errorf("%s: %d packets took the fast path", network, n)
		}
		nettest.Run(t, w.node, "nft", "flush chain inet t f")
	}
}

// Flows that the stack translates, marks, or whose DSCP it changes, are not learned.
func TestChangedPackets(t *testing.T) {
	for name, rules := range map[string]string{
		"destination NAT": `add chain inet t p { type nat hook prerouting priority dstnat; };
			add rule inet t p ip daddr 10.9.9.9 dnat ip to ` + addrB,
		"masquerade": `add chain inet t p { type nat hook postrouting priority srcnat; };
			add rule inet t p ip saddr ` + addrA + ` masquerade`,
		"a mark":       "insert rule inet t f meta mark set 7",
		"another DSCP": "insert rule inet t f ip dscp set cs1",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			nettest.Run(t, w.node, "nft", rules)
			w.start(t, long)
			to := addrC
			ns := w.c
			if name == "destination NAT" {
				to, ns = "10.9.9.9", w.b
			}
			for _, network := range []string{"tcp", "udp"} {
				serve(t, ns, network, "0.0.0.0:7000")
				if network == "udp" && name == "destination NAT" {
					serve(t, w.b, network, addrB+":7001") // as a server answers from the address that was asked
					w.slow(t, dial(t, w.a, network, to+":7001"))
					continue
				}
				w.slow(t, dial(t, w.a, network, to+":7000"))
			}
		})
	}
}

// Each packet's lifetime is one less behind the node, and one without any left is answered by the node.
func TestLifetime(t *testing.T) {
	w := newWorld(t)
	nettest.Run(t, w.b, "nft", `add table inet t; add chain inet t i { type filter hook input priority 0; };
		add rule inet t i ip ttl 63 counter comment "good"; add rule inet t i ip6 hoplimit 63 counter comment "good";
		add rule inet t i meta l4proto { tcp, udp } ip ttl != 63 counter comment "bad";
		add rule inet t i meta l4proto { tcp, udp } ip6 hoplimit != 63 counter comment "bad"`)
	w.start(t, long)
	for _, addr := range []string{addrB, sixB} {
		s := w.learn(t, "udp", w.a, w.b, addr)
		raw, err := s.Conn.(*net.UDPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if err := raw.Control(func(fd uintptr) {
			if addr == addrB {
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
	for _, line := range strings.Split(nettest.Run(t, w.b, "nft", "list", "chain", "inet", "t", "i"), "\n") {
		none := strings.Contains(line, "packets 0 ")
		if strings.Contains(line, `"bad"`) && !none || strings.Contains(line, `"good"`) && none {
			t.Error(line)
		}
	}
}

// Packets that exceed the MTU of a route are answered with the MTU.
func TestMTU(t *testing.T) {
	w := newWorld(t)
	ip(t, w.node, "route change 10.0.1.0/24 via 172.16.0.2 mtu lock 1300", "-6 route change fd00:1::/64 via fd01::2 mtu lock 1300")
	w.start(t, long)
	for _, addr := range []string{addrC, sixC} {
		s := w.learn(t, "tcp", w.a, w.c, addr)
		s.must(1, 300_000)
		if out := nettest.Run(t, w.a, "ip", "route", "get", addr); !strings.Contains(out, "mtu 1300") {
			t.Errorf("the sender has not learned the MTU: %s", out)
		}
		before := w.packets(t)
		s.must(1, 300_000)
		if w.packets(t) == before {
			t.Errorf("%s: packets of that MTU do not take the fast path", addr)
		}
	}
}

// The end of a connection takes the slow path: conntrack knows it.
func TestClosing(t *testing.T) {
	w := newWorld(t)
	w.start(t, long)
	s := w.learn(t, "tcp", w.a, w.b, addrB)
	if err := s.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Fatal(n, err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		out, err := nettest.Try(w.node, "conntrack", "-L", "-p", "tcp")
		if err != nil {
			nettest.SkipMissing(t, "conntrack: "+err.Error())
		}
		if strings.Contains(out, "TIME_WAIT") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("conntrack does not know the end:\n%s", out)
		}
	}
}

// After one end has closed, the packets of the other one take the slow path.
func TestHalfClosed(t *testing.T) {
	w := newWorld(t)
	w.start(t, long)
	var l net.Listener
	if err := w.b.Do(func() (err error) { l, err = net.Listen("tcp", addrB+":7000"); return err }); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	s := dial(t, w.a, "tcp", addrB+":7000")
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	send := func(n int) {
		t.Helper()
		b := make([]byte, 100)
		for range n {
			if _, err := server.Write(b); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(s, b); err != nil {
				t.Fatal(err)
			}
		}
	}
	send(5)
	before := w.packets(t)
	send(20)
	if w.packets(t) == before {
		t.Fatal("nothing takes the fast path")
	}
	if err := s.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	before = w.packets(t)
	send(20)
	if n := w.packets(t) - before; n > 0 {
		t.Errorf("%d packets took the fast path", n)
	}
}

// In each interval a packet takes the slow path and keeps the entry of conntrack alive; the flow is learned again.
func TestInterval(t *testing.T) {
	w := newWorld(t)
	w.start(t, 10*time.Millisecond)
	addr := addrB + ":7000"
	serve(t, w.b, "udp", addr)
	s := dial(t, w.a, "udp", addr)
	s.must(5, 100)
	seen := forwarded(t, w.node)
	before, err := w.path.Counters()
	if err != nil {
		t.Fatal(err)
	}
	// On a busy host few packets are sent in an interval, or in all of them.
	for end := time.Now().Add(30 * time.Second); ; {
		s.must(20, 100)
		after, err := w.path.Counters()
		if err != nil {
			t.Fatal(err)
		}
		n := forwarded(t, w.node) - seen
		if n >= 4 && after.Learned-before.Learned >= 4 && after.Packets-before.Packets >= 4 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the stack forwarded %d, before %+v, after %+v", n, before, after)
		}
	}
}

// fate is what becomes of a frame: lost ones are not forwarded at all.
type fate int

const (
	fast fate = iota
	slow
	lost
)

// Frames of a pod in another's name, or with another MAC, take the slow path with its guards, also those of a learned flow.
func TestForged(t *testing.T) {
	w := newWorld(t)
	w.start(t, long)
	mac := nettest.MAC(t, w.a, "eth0")
	gateway := net.HardwareAddr{0xee, 0xee, 0xee, 0xee, 0xee, 0xee}
	frame := func(src net.HardwareAddr, from, to netip.AddrPort, text string) []byte {
		return forge.Ether(gateway, src, forge.KindOf(from.Addr()),
			forge.IP(from.Addr(), to.Addr(), forge.ProtoUDP, forge.UDP(from, to, []byte(text))))
	}
	l := nettest.Listen(t, w.c, 7009)
	for _, family := range []struct{ own, other, to string }{{addrA, addrB, addrC}, {sixA, sixB, sixC}} {
		s := w.learn(t, "udp", w.a, w.c, family.to)
		s2, last := w.learnFrom(t, w.b, family.to), w.learnFrom(t, w.a, family.to)
		own, to := s.LocalAddr().(*net.UDPAddr).AddrPort(), s.RemoteAddr().(*net.UDPAddr).AddrPort()
		for _, c := range []struct {
			name  string
			frame []byte
			fate  fate
		}{
			{"its own", frame(mac, own, to, "own"), fast},
			{"another MAC", frame(net.HardwareAddr{2, 0, 0, 0, 0, 9}, own, to, "mac"), slow},
			{"another pod's flow", frame(mac, s2.LocalAddr().(*net.UDPAddr).AddrPort(), to, "flow"), slow},
			{"another pod's address", frame(mac, netip.AddrPortFrom(netip.MustParseAddr(family.other), 9), to, "addr"), slow},
			{"a tag", forge.Tagged(frame(mac, own, to, "tag"), forge.TypeVLAN, 7), lost},
			{"a protocol", forge.Ether(gateway, mac, forge.KindOf(own.Addr()), forge.IP(own.Addr(), to.Addr(), 47, make([]byte, 60))), lost},
		} {
			last.must(1, 100) // behind the server's answers to the frames before, which take the fast path
			before, seen := w.packets(t), forwarded(t, w.node)
			for range 20 {
				nettest.SendFrame(t, w.a, "eth0", c.frame)
			}
			// The kernel of a busy host processes frames after they were sent.
			for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
				if c.fate == fast && w.packets(t)-before >= 20 || c.fate == slow && forwarded(t, w.node)-seen >= 20 || c.fate == lost {
					break
				}
			}
			switch n := forwarded(t, w.node) - seen; {
			case c.fate == fast && (n > 0 || w.packets(t)-before < 20):
				t.Errorf("%s, %s: the stack forwarded %d of 20 packets", family.own, c.name, n)
			case c.fate == slow && n < 20:
				t.Errorf("%s, %s: the stack forwarded %d of 20 packets", family.own, c.name, n)
			case c.fate == lost && w.packets(t) > before:
				t.Errorf("%s, %s: it took the fast path", family.own, c.name)
			}
		}
		// A guard sees all of them: none of the forged frames passes it.
		nettest.Run(t, w.node, "nft", fmt.Sprintf(`add table inet g; add chain inet g p { type filter hook prerouting priority -300; };
			add rule inet g p iifname calia ether saddr != %s counter drop; add rule inet g p iifname calia ip saddr != %s counter drop;
			add rule inet g p iifname calia ip6 saddr != %s counter drop`, mac, addrA, sixA))
		to = netip.AddrPortFrom(to.Addr(), 7009)
		if !l.Receives("honest", time.Minute, func() { nettest.SendFrame(t, w.a, "eth0", frame(mac, own, to, "honest")) }) {
			t.Error("its own packets do not arrive")
		}
		if l.Receives("mac", 300*time.Millisecond, func() {
			nettest.SendFrame(t, w.a, "eth0", frame(net.HardwareAddr{2, 0, 0, 0, 0, 9}, own, to, "mac"))
		}) {
			t.Error("another MAC passes the guard")
		}
		other := netip.AddrPortFrom(netip.MustParseAddr(family.other), own.Port())
		if l.Receives("addr", 300*time.Millisecond, func() { nettest.SendFrame(t, w.a, "eth0", frame(mac, other, to, "addr")) }) {
			t.Error("another address passes the guard")
		}
		nettest.Run(t, w.node, "nft", "delete table inet g")
	}
}

// learnFrom is learn from another pod to the server that learn has started.
func (w *world) learnFrom(t *testing.T, from *netns.NS, addr string) *stream {
	t.Helper()
	s := dial(t, from, "udp", net.JoinHostPort(addr, "7000"))
	s.must(10, 100)
	return s
}

// Fragments and IP options take the slow path.
func TestFragments(t *testing.T) {
	w := newWorld(t)
	w.start(t, long)
	for _, addr := range []string{addrB, sixB} {
		s := w.learn(t, "udp", w.a, w.b, addr)
		before := w.packets(t)
		s.must(10, 4000)
		if n := w.packets(t) - before; n > 0 {
			t.Errorf("%d fragments took the fast path", n)
		}
	}
}

// A pod's link with a queueing discipline is not part of the path, neither is one with filters; a link that is gone is none.
func TestLeft(t *testing.T) {
	w := newWorld(t)
	w.start(t, long)
	s := w.learn(t, "tcp", w.a, w.b, addrB)
	limited(t, w.node, "calib")
	left, err := w.path.Set(t.Context(), w.links())
	if err != nil || len(left) != 1 || left[0].Name != "calib" || !strings.Contains(left[0].Why.Error(), "tbf") {
		t.Fatal(left, err)
	}
	w.slow(t, s)
	nettest.Run(t, w.node, "tc", "qdisc", "del", "dev", "calib", "root")
	w.set(t)
	s.must(5, 100)
	before := w.packets(t)
	if s.must(20, 100); w.packets(t) == before {
		t.Error("nothing takes the fast path again")
	}
	if _, err := nettest.Try(w.node, "tc", "qdisc", "add", "dev", "calia", "clsact"); err == nil {
		nettest.Run(t, w.node, "tc", "filter", "add", "dev", "calia", "ingress", "u32", "match", "u32", "0", "0", "classid", "1:1")
		left, err = w.path.Set(t.Context(), w.links())
		if err != nil || len(left) != 1 || left[0].Name != "calia" || !strings.Contains(left[0].Why.Error(), "filters") {
			t.Fatal(left, err)
		}
		w.slow(t, s)
	}
	ip(t, w.node, "link del calib")
	if left, err = w.path.Set(t.Context(), w.links()); err != nil || !strings.Contains(fmt.Sprint(left), "calib") {
		t.Fatal(left, err)
	}
}

// Flows continue when the path is closed, and nothing of it is left.
func TestClose(t *testing.T) {
	w := newWorld(t)
	w.start(t, long)
	s := w.learn(t, "tcp", w.a, w.c, addrC)
	s.must(100, 1000)
	if n := programs(t, w.node); n != 6 {
		t.Errorf("%d programs are attached", n)
	}
	if err := w.path.Close(); err != nil {
		t.Fatal(err)
	}
	if n := programs(t, w.node); n != 0 {
		t.Errorf("%d programs are left", n)
	}
	s.must(20, 1000)
}

// programs counts the programs at the node's links.
func programs(t *testing.T, ns *netns.NS) (n int) {
	t.Helper()
	err := ns.Do(func() error {
		all, err := net.Interfaces()
		if err != nil {
			return err
		}
		for _, i := range all {
			for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
				found, err := link.QueryPrograms(link.QueryOptions{Target: i.Index, Attach: at})
				if err != nil && !errors.Is(err, unix.ENOENT) {
					return err
				}
				if found != nil {
					n += len(found.Programs)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A process that is killed leaves no programs, and flows continue.
func TestKilled(t *testing.T) {
	const variable = "WEFT_TEST_FASTPATH"
	if os.Getenv(variable) != "" {
		own, err := netns.Current()
		if err != nil {
			t.Fatal(err)
		}
		w := &world{uplink: "eth0", node: own}
		w.start(t, long)
		fmt.Println("attached")
		time.Sleep(time.Minute)
		return
	}
	w := newWorld(t)
	probe, err := fastpath.Load(w.node)
	if err != nil {
		nettest.Skip(t, "no fast path: "+err.Error())
	}
	if err := probe.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "TestKilled$")
	cmd.Env = append(os.Environ(), variable+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.node.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	ready := false
	for lines := bufio.NewScanner(out); !ready && lines.Scan(); {
		ready = strings.Contains(lines.Text(), "attached")
	}
	if n := programs(t, w.node); !ready || n != 6 {
		t.Fatalf("%d programs are attached", n)
	}
	addr := addrB + ":7000"
	serve(t, w.b, "tcp", addr)
	s := dial(t, w.a, "tcp", addr)
	s.must(100, 1000)
	seen := forwarded(t, w.node)
	if s.must(100, 1000); forwarded(t, w.node)-seen > 20 {
		t.Error("nothing takes the fast path")
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for end := time.Now().Add(time.Minute); programs(t, w.node) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("programs are left")
		}
	}
	s.must(20, 1000)
}

// A packet that is translated into the tuple of a flow that the stack drops does not teach that flow.
func TestTranslatedIntoDroppedFlow(t *testing.T) {
	w := newWorld(t)
	nettest.Run(t, w.node, "nft", `add chain inet t p { type nat hook prerouting priority dstnat; };
		add rule inet t p ip daddr 10.9.9.9 dnat ip to `+addrB+`; insert rule inet t f ct original ip daddr `+addrB+` counter drop`)
	w.start(t, long)
	l := nettest.Listen(t, w.b, 7000)
	var c *net.UDPConn
	if err := w.a.Do(func() (err error) {
		c, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(addrA), Port: 5555})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	send := func(addr, text string) {
		t.Helper()
		if _, err := c.WriteToUDP([]byte(text), &net.UDPAddr{IP: net.ParseIP(addr), Port: 7000}); err != nil {
			t.Fatal(err)
		}
	}
	if !l.Receives("service", time.Minute, func() { send(addrB, "direct"); send("10.9.9.9", "service") }) {
		t.Fatal("packets of the service do not arrive")
	}
	for range 20 {
		send(addrB, "direct")
		send("10.9.9.9", "service")
	}
	if l.Receives("direct", 300*time.Millisecond, func() { send(addrB, "direct") }) {
		t.Error("a packet of the dropped flow arrives")
	}
	if n := w.packets(t); n > 0 {
		t.Errorf("%d packets took the fast path", n)
	}
}
