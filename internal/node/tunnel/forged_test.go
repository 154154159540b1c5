// SPDX-License-Identifier: Apache-2.0

package tunnel_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/tunnel/udp"
	"github.com/weft-net/weft/internal/plan/mesh"
)

const heardAt = 9999

// datagram is an IP packet with a UDP datagram to heardAt.
func datagram(from, to, words string) []byte {
	src, dst := netip.MustParseAddr(from), netip.MustParseAddr(to)
	body := binary.BigEndian.AppendUint16(nil, 4000)
	body = binary.BigEndian.AppendUint16(body, heardAt)
	body = binary.BigEndian.AppendUint16(body, uint16(8+len(words)))
	body = append(append(body, 0, 0), words...)
	if src.Is4() {
		ip := []byte{0x45, 0, 0, byte(20 + len(body)), 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0}
		ip = append(append(ip, src.AsSlice()...), dst.AsSlice()...)
		binary.BigEndian.PutUint16(ip[10:], ^sum(ip))
		return append(ip, body...)
	}
	pseudo := append(append(src.AsSlice(), dst.AsSlice()...), 0, 0, 0, byte(len(body)), 0, 0, 0, unix.IPPROTO_UDP)
	binary.BigEndian.PutUint16(body[6:], ^sum(append(pseudo, body...)))
	ip := []byte{0x60, 0, 0, 0, 0, byte(len(body)), unix.IPPROTO_UDP, 64}
	return append(append(append(ip, src.AsSlice()...), dst.AsSlice()...), body...)
}

// sum is the sum that the Internet checksum is the complement of (RFC 1071).
func sum(b []byte) uint16 {
	var s uint32
	for i, c := range b {
		s += uint32(c) << (8 * (1 - i%2))
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// wrapped is what a socket of a pod sends to have a node take the packet out: a UDP port, or 0 and the bytes behind IP.
func wrapped(t *testing.T, backend string, to *testNode, packet []byte) (port int, payload []byte) {
	t.Helper()
	six := packet[0]>>4 == 6
	switch backend {
	case "vxlan":
		link, kind := "flannel.1", []byte{8, 0}
		if six {
			link, kind = "flannel-v6.1", []byte{0x86, 0xdd}
		}
		var mac net.HardwareAddr
		if err := to.node.Do(func() error {
			l, err := net.InterfaceByName(link)
			if err == nil {
				mac = l.HardwareAddr
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		head := append([]byte{8, 0, 0, 0, 0, 0, 1, 0}, mac...)
		head = append(append(head, 2, 0, 0, 0, 0, 99), kind...)
		return 8472, append(head, packet...)
	case "udp":
		return 8285, packet
	}
	return 0, packet
}

// send sends from a namespace, by an ordinary UDP socket, or by a raw one of a protocol.
func send(t *testing.T, from *netns.NS, to string, port, protocol int, payload []byte) {
	t.Helper()
	err := from.Do(func() error {
		network, addr := "ip:"+map[int]string{4: "4", 41: "41"}[protocol], to
		if port != 0 {
			network, addr = "udp", netip.AddrPortFrom(netip.MustParseAddr(to), uint16(port)).String()
		}
		c, err := net.Dial(network, addr)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		_, err = c.Write(payload)
		return err
	})
	if err != nil && !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.EPERM) {
		t.Fatal(err)
	}
}

// ear hears datagrams at heardAt, or packets of a protocol, in a namespace.
type ear struct {
	t *testing.T
	net.PacketConn
}

func listen(t *testing.T, ns *netns.NS, network, addr string) ear {
	t.Helper()
	var c net.PacketConn
	if err := ns.Do(func() (err error) { c, err = net.ListenPacket(network, addr); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return ear{t, c}
}

// hears reports whether words arrive in time.
func (e ear) hears(words string, limit time.Duration) bool {
	_, ok := e.until(words, limit)
	return ok
}

// until also returns what arrived before.
func (e ear) until(words string, limit time.Duration) (before string, ok bool) {
	e.t.Helper()
	if err := e.SetReadDeadline(time.Now().Add(limit)); err != nil {
		e.t.Fatal(err)
	}
	buf := make([]byte, 2048)
	for {
		n, _, err := e.ReadFrom(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return before, false
		}
		if err != nil {
			e.t.Fatal(err)
		}
		if bytes.Contains(buf[:n], []byte(words)) {
			return before, true
		}
		before += string(buf[:n]) + " "
	}
}

// guarded waits until a node has its source guard.
func guarded(t *testing.T, m *testNode) {
	t.Helper()
	within(t, "the guard of "+m.name, func() bool {
		out, err := nettest.Try(m.node, "nft", "list", "table", "inet", mesh.GuardTable)
		return err == nil && strings.Contains(out, "hook forward")
	})
}

// bridgePod adds a pod on a bridge to a node, with an address of each family.
func bridgePod(t *testing.T, m *testNode) *netns.NS {
	t.Helper()
	ns, n := nettest.NS(t, m.name+"-bridged"), m.name[1:]
	ip(t, m.node, "link add cni0 type bridge", "link set cni0 up", "addr add 10.244."+n+".129/25 dev cni0",
		"addr add fd00:244:"+n+":0:1::1/80 dev cni0 nodad",
		"link add port0 type veth peer name eth0 netns "+ns.Path(), "link set port0 master cni0 up")
	ip(t, ns, "link set lo up", "link set eth0 up", "addr add 10.244."+n+".130/25 dev eth0",
		"addr add fd00:244:"+n+":0:1::2/80 dev eth0 nodad",
		"route add default via 10.244."+n+".129", "route add default via fd00:244:"+n+":0:1::1")
	return ns
}

// TestForged: no pod writes a tunnel's packet, to another node or to its own, with whatever inner source; and a peer
// writes none in the name of a third one. Without the guard all of them arrive.
func TestForged(t *testing.T) {
	for _, backend := range []string{"vxlan", "udp"} {
		t.Run(backend, func(t *testing.T) {
			nettest.Need(t, map[string]string{"vxlan": "vxlan", "udp": "tap"}[backend])
			forge(t, backend)
		})
	}
}

// TestForgedIPIPDevice is the same of the backend ipip, where the kernel has its device.
func TestForgedIPIPDevice(t *testing.T) {
	nettest.Need(t, "ipip")
	forge(t, "ipip")
}

// forge tries all ways over a backend.
func forge(t *testing.T, backend string) {
	how := mesh.Config{
		Backend: backend, Masquerade: []netip.Prefix{
			netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/32"),
		},
	}
	c := newCluster(t, how, how, how)
	bridged := bridgePod(t, c.nodes[0])
	var family []int       // both
	if backend == "ipip" { // which is IPv4 alone
		family = []int{0}
	}
	c.allReach(family...)
	n1, n2 := c.nodes[0], c.nodes[1]
	guarded(t, n1)
	guarded(t, n2)
	ways, protocol := forgeries(n1, n2), 0
	if family != nil {
		protocol, ways = 4, slices.DeleteFunc(ways, func(w forgery) bool { return strings.Contains(w.from, ":") })
	}
	attack := func(t *testing.T, want bool) {
		for name, attacker := range map[string]*netns.NS{"routed": n1.pod, "bridged": bridged} {
			for _, w := range ways {
				e := listen(t, w.ear, "udp", ":9999")
				port, payload := wrapped(t, backend, w.at, datagram(w.from, w.to, "forged"))
				limit := 200 * time.Millisecond
				if want {
					limit = time.Minute
				}
				before := refusedAt(n1, w.node)
				for range 3 {
					send(t, attacker, w.node, port, protocol, payload)
				}
				if n := refusedAt(n1, w.node) - before; !want && w.node[len(w.node)-1] == '2' && n != 3 {
					t.Errorf("%s pod to %s: its own node drops %d of 3", name, w.name, n)
				}
				if got := e.hears("forged", limit); got != want {
					t.Errorf("%s pod to %s: arrives %v, want %v\n%s%s", name, w.name, got, want, rulesOf(n1), rulesOf(n2))
				}
				_ = e.Close()
			}
		}
	}
	attack(t, false)
	t.Run("a peer in the name of a third", func(t *testing.T) {
		e := listen(t, n2.pod, "udp", ":9999")
		for _, from := range []string{"10.244.3.5", "10.244.2.99", "192.168.0.2", "8.8.8.8"} {
			port, payload := wrapped(t, backend, n2, datagram(from, n2.addrs[0], "forged"))
			send(t, n1.node, "192.168.0.2", port, protocol, payload)
		}
		port, payload := wrapped(t, backend, n2, datagram("10.244.1.5", n2.addrs[0], "honest"))
		send(t, n1.node, "192.168.0.2", port, protocol, payload)
		before, ok := e.until("honest", time.Minute)
		if !ok || before != "" || e.hears("forged", 200*time.Millisecond) {
			t.Errorf("what a peer sends in its own name arrives: %v, before it %q", ok, before)
		}
	})
	if backend == "udp" {
		t.Run("behind an honest one", func(t *testing.T) { batched(t, c) })
	}
	c.allReach(family...)
	for _, m := range []*testNode{n1, n2} {
		m.leave()
		nettest.Run(t, m.node, "nft", "delete", "table", "inet", mesh.GuardTable)
		if backend == "ipip" {
			// which has no ports: the kernel has no second name for a flow that is masqueraded as the tunnel's own
			nettest.Run(t, m.node, "nft", "flush", "ruleset")
		}
	}
	if backend == "udp" {
		unguardedUDP(t, n1, n2)
	}
	attack(t, true)
}

// refusedAt returns how many packets a node did not route to the nodes' tunnels, of the family of an address.
func refusedAt(m *testNode, to string) (n int) {
	word := "ip daddr @peers4 counter packets "
	if strings.Contains(to, ":") {
		word = "ip6 daddr @peers6 counter packets "
	}
	if _, rest, found := strings.Cut(rulesOf(m), word); found {
		_, _ = fmt.Sscan(rest, &n)
	}
	return n
}

// unguardedUDP replaces the nodes' own tunnels by one that accepts datagrams of any sender, with any source in them.
func unguardedUDP(t *testing.T, nodes ...*testNode) {
	t.Helper()
	for _, m := range nodes {
		m.stop()
		all := udp.Accept{
			Senders: []udp.Sender{{Prefixes: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}}},
		}
		for _, n := range []string{"1", "2"} {
			for _, addr := range []string{
				"192.168.0." + n, "fd00::" + n, "10.244." + n + ".5", "10.244." + n + ".130", "fd00:244:" + n + "::5",
				"fd00:244:" + n + ":0:1::2",
			} {
				all.Senders[0].Addrs = append(all.Senders[0].Addrs, netip.MustParseAddr(addr))
			}
		}
		for link, addr := range map[string]string{
			"flannel0": "192.168.0." + m.name[1:], "flannel0-v6": "fd00::" + m.name[1:],
		} {
			path, err := udp.Open(udp.Config{
				NS: m.node, Link: link, Listen: netip.AddrPortFrom(netip.MustParseAddr(addr), 8285), Now: time.Now,
			})
			if err != nil {
				t.Fatal(err)
			}
			path.SetPeers(nil, all)
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- path.Run(ctx) }()
			t.Cleanup(func() {
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// batched has a peer send datagrams that the kernel hands over as one: the guard's rules see the first of them.
func batched(t *testing.T, c *cluster) {
	n1, n2 := c.nodes[0], c.nodes[1]
	for i, w := range []struct {
		from, to, honest string
		forged           []string
	}{
		{
			"192.168.0.1:0", "192.168.0.2:8285", "10.244.1.5",
			[]string{"10.244.3.5", "10.244.2.99", "192.168.0.2", "192.168.0.3", "10.250.0.1", "127.0.0.1"},
		},
		{
			"[fd00::1]:0", "[fd00::2]:8285", "fd00:244:1::5",
			[]string{"fd00:244:3::5", "fd00:244:2::99", "fd00::2", "fd00::3", "fd00:99::1", "::1"},
		},
	} {
		e := listen(t, n2.pod, "udp", ":9999")
		batch := datagram(w.honest, n2.addrs[i], "honest")
		size := len(batch)
		for _, from := range w.forged {
			batch = append(batch, datagram(from, n2.addrs[i], "forged")...)
		}
		batch = append(batch, datagram(w.honest, n2.addrs[i], "last")...)
		if err := n1.node.Do(func() error {
			return sendBatch(netip.MustParseAddrPort(w.from), netip.MustParseAddrPort(w.to), batch, size)
		}); err != nil {
			t.Fatal(err)
		}
		if before, ok := e.until("last", time.Minute); !ok || before != "honest " {
			t.Errorf("to %s: the last one arrives: %v, before it %q, want the honest one alone", w.to, ok, before)
		}
		_ = e.Close()
	}
}

// sendBatch sends datagrams of a size in one message.
func sendBatch(from, to netip.AddrPort, batch []byte, size int) error {
	c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(from), net.UDPAddrFromAddrPort(to))
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var fault error
	if err := raw.Control(func(fd uintptr) {
		fault = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, size)
	}); err != nil || fault != nil {
		return errors.Join(err, fault)
	}
	_, err = c.Write(batch)
	return err
}

// forgery is a packet that a pod of n1 has a node take out of a tunnel's packet, and where it would be heard.
type forgery struct {
	name, node, from, to string
	at                   *testNode
	ear                  *netns.NS
}

func forgeries(n1, n2 *testNode) []forgery {
	return []forgery{
		{"another node's pod", "192.168.0.2", "10.244.1.99", n2.addrs[0], n2, n2.pod},
		{"another node's pod, IPv6", "fd00::2", "fd00:244:1::99", n2.addrs[1], n2, n2.pod},
		{"another node", "192.168.0.2", "10.244.1.99", "192.168.0.2", n2, n2.node},
		{"its own node", "192.168.0.1", "10.244.2.99", "192.168.0.1", n1, n1.node},
		{"its own node, IPv6", "fd00::1", "fd00:244:2::99", "fd00::1", n1, n1.node},
		{"its own node's pod", "192.168.0.1", "10.244.2.99", n1.addrs[0], n1, n1.pod},
	}
}

func rulesOf(m *testNode) string {
	out, _ := nettest.Try(m.node, "nft", "list", "table", "inet", mesh.GuardTable)
	return out
}
