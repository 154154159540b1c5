// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"bytes"
	"encoding/binary"
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
	"github.com/weft-net/weft/internal/node/policy"
)

// TestErrorsAboutOlderPackets: while no pod has an address, packets to it leave by another route, and the kernel tracks
// them. An ICMP error that claims to be about their answer does not reach the isolated pod that has the address later;
// an error about a packet of its own does.
func TestErrorsAboutOlderPackets(t *testing.T) {
	w := newWorld(t)
	w.start(func(c *policy.Config) { c.Keep = true }) // with cut the connection is deleted a moment later
	w.manifest("closed", strings.NewReplacer("podSelector: {}", "podSelector: {matchLabels: {app: web}}", ", Egress", "").
		Replace(denyAll))
	w.manifest("tracked", strings.NewReplacer("name: none", "name: tracked", "podSelector: {}",
		"podSelector: {matchLabels: {app: tracked}}").Replace(denyAll))
	w.pod("shop/tracked", "app: tracked") // the kernel tracks connections once a rule needs it
	other := w.pod("shop/other", "app: other")
	t.Cleanup(func() { _, _ = nettest.Try(nil, "ip", "link", "del", "out") })
	for _, line := range []string{
		"link add out type veth peer name away", "link set out up", "link set away up", "addr add 192.0.2.1/24 dev out",
		"neigh add 192.0.2.9 lladdr 02:00:00:00:00:09 dev out nud permanent", "route add 10.9.0.0/24 via 192.0.2.9 dev out",
	} {
		nettest.IP(t, nil, line)
	}
	next := w.guarded("shop/web").Addrs[0]
	sendUDP(t, other.ns, netip.AddrPortFrom(other.addr, 4000), netip.AddrPortFrom(next, 7000))
	web := w.pod("shop/web", "app: web")
	if web.addr != next {
		t.Fatalf("the pod has %s, want %s", web.addr, next)
	}
	heard := icmpErrors(t, web.ns)
	never := udpBetween(netip.AddrPortFrom(next, 7000), netip.AddrPortFrom(other.addr, 4000), "forged")
	sendError(t, other.ns, next, never)
	// What the pod itself sends to a closed port is answered by an error, which is of its connection.
	sendUDP(t, web.ns, netip.AddrPortFrom(web.addr, 5000), netip.AddrPortFrom(other.addr, 5001))
	before := heard("5001", time.Minute)
	if strings.Contains(before, "forged") {
		t.Errorf("the error arrives:\n%s", ruleset())
	}
	w.remove("closed")
	w.eventually("without the policy the error arrives", func() bool {
		sendError(t, other.ns, next, never)
		return strings.Contains(heard("forged", 100*time.Millisecond), "forged")
	})
}

// udpBetween is an IPv4 packet, without checksums, as an error quotes it.
func udpBetween(src, dst netip.AddrPort, text string) []byte {
	b := []byte{0x45, 0, 0, byte(28 + len(text)), 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0}
	b = append(append(b, src.Addr().AsSlice()...), dst.Addr().AsSlice()...)
	b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, src.Port()), dst.Port())
	b = append(binary.BigEndian.AppendUint16(b, uint16(8+len(text))), 0, 0)
	return append(b, text...)
}

// sendUDP sends a datagram that names its destination's port.
func sendUDP(t *testing.T, from *netns.NS, src, dst netip.AddrPort) {
	t.Helper()
	err := from.Do(func() error {
		c, err := net.DialUDP("udp4", net.UDPAddrFromAddrPort(src), net.UDPAddrFromAddrPort(dst))
		if err != nil {
			return err
		}
		_, err = c.Write([]byte(dst.String()))
		return errors.Join(err, c.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
}

// sendError sends an ICMP error, "port unreachable", that quotes a packet.
func sendError(t *testing.T, from *netns.NS, to netip.Addr, quoted []byte) {
	t.Helper()
	message := append([]byte{3, 3, 0, 0, 0, 0, 0, 0}, quoted...)
	sum := uint32(0)
	for i := 0; i+1 < len(message); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(message[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(message[2:], ^uint16(sum))
	err := from.Do(func() error {
		c, err := net.Dial("ip4:icmp", to.String())
		if err != nil {
			return err
		}
		_, err = c.Write(message)
		return errors.Join(err, c.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
}

// icmpErrors listens for ICMP in a namespace: what is returned waits until a text is in a message, and returns all that
// has arrived until then.
func icmpErrors(t *testing.T, ns *netns.NS) func(text string, limit time.Duration) string {
	t.Helper()
	var c net.PacketConn
	if err := ns.Do(func() (err error) { c, err = net.ListenPacket("ip4:icmp", "0.0.0.0"); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return func(text string, limit time.Duration) string {
		if err := c.SetReadDeadline(time.Now().Add(limit)); err != nil {
			t.Fatal(err)
		}
		all, b := "", make([]byte, 1<<12)
		for {
			n, _, err := c.ReadFrom(b)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return all
			}
			if err != nil {
				t.Fatal(err)
			}
			if all += string(b[:n]); bytes.Contains(b[:n], []byte(text)) {
				return all
			}
		}
	}
}
