// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// codePoint returns the code point of a packet from one namespace to an address of another one, -1 if none arrives.
func codePoint(t *testing.T, from, at *netns.NS, to netip.Addr) int {
	t.Helper()
	var l *net.UDPConn
	err := at.Do(func() (err error) {
		l, err = net.ListenUDP("udp", &net.UDPAddr{IP: to.AsSlice()})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	raw, err := l.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVTOS, 1)
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, 1)
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	err = from.Do(func() error {
		c, err := net.Dial("udp", l.LocalAddr().String())
		if err != nil {
			return err
		}
		_, err = c.Write([]byte("x"))
		return errors.Join(err, c.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
	_ = l.SetReadDeadline(time.Now().Add(10 * time.Second))
	b, control := make([]byte, 9), make([]byte, 64)
	_, size, _, _, err := l.ReadMsgUDP(b, control)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return -1
	}
	messages, parseErr := unix.ParseSocketControlMessage(control[:size])
	if err = errors.Join(err, parseErr); err != nil || len(messages) != 1 || len(messages[0].Data) < 1 {
		t.Fatalf("%v: %v", messages, err)
	}
	return int(messages[0].Data[0] >> 2)
}

// TestMarkedPods: the code point that a pod requests is set on its packets that leave the cluster, of both families,
// and not on packets to pods and nodes; other pods have none. It stays when an agent restarts, and is removed with the
// pod.
func TestMarkedPods(t *testing.T) {
	nettest.EndToEnd(t)
	p := newTwo(
		t,
		"pools: [{cidr: 10.77.0.0/24, blockSize: 28, encapsulation: none}, {name: six, cidr: \"fd77::/112\", blockSize: 124, encapsulation: none}]",
	)
	n1, n2 := p.nodes[0], p.nodes[1]
	outside := nettest.NS(t, "outside")
	nettest.Run(t, n1.node, "ip", "link", "add", "out0", "up", "type", "veth", "peer", "name", "eth0", "netns",
		outside.Path())
	nettest.Run(t, outside, "ip", "link", "set", "eth0", "up")
	for _, words := range [][2]string{{"203.0.113.1/24", "203.0.113.2/24"}, {"fd13::1/64", "fd13::2/64"}} {
		nettest.Run(t, n1.node, "ip", "addr", "add", words[0], "dev", "out0", "nodad")
		nettest.Run(t, outside, "ip", "addr", "add", words[1], "dev", "eth0", "nodad")
	}
	p.put("Pod", "team", "voice", map[string]string{"qos.projectcalico.org/dscp": "EF"})
	p.put("Pod", "team", "plain", nil)
	voice, _, err := p.namedOn(n1, "team", "voice")
	if err != nil {
		t.Fatal(err)
	}
	plain, _, err := p.namedOn(n1, "team", "plain")
	if err != nil {
		t.Fatal(err)
	}
	peer, addrs := p.pod(n2, "peer")
	p.reaches(voice, addrs)
	beyond := []netip.Addr{netip.MustParseAddr("203.0.113.2"), netip.MustParseAddr("fd13::2")}
	marked := func() {
		t.Helper()
		for _, to := range beyond {
			p.until("what leaves the cluster is marked", func() bool { return codePoint(t, voice, outside, to) == 46 })
			if got := codePoint(t, plain, outside, to); got != 0 {
				t.Errorf("to %s: a pod that asks for nothing is marked %d", to, got)
			}
		}
	}
	marked()
	for _, to := range addrs {
		if got := codePoint(t, voice, peer, to); got != 0 {
			t.Errorf("what a pod gets at %s is marked %d", to, got)
		}
	}
	if got := codePoint(t, voice, n2.node, netip.MustParseAddr("192.168.77.2")); got != 0 {
		t.Errorf("what a node gets is marked %d", got)
	}
	n1.kill()
	n1.start()
	marked()
	p.detach(n1, "team", "voice", voice)
	p.until("it goes with its pod", func() bool {
		return !strings.Contains(nettest.Run(t, n1.node, "nft", "list", "tables"), "weft-dscp")
	})
}
