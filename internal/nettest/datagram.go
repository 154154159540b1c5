// SPDX-License-Identifier: Apache-2.0

package nettest

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

// Datagram is a UDP packet in an Ethernet frame with any source addresses, which a raw socket can send.
type Datagram struct {
	SrcMAC, DstMAC net.HardwareAddr
	Src, Dst       netip.AddrPort
	Text           string
}

// Frame returns the Ethernet frame.
func (d Datagram) Frame() []byte {
	const udp = 17
	size := uint16(8 + len(d.Text))
	src, dst := d.Src.Addr().AsSlice(), d.Dst.Addr().AsSlice()
	body := binary.BigEndian.AppendUint16(nil, d.Src.Port())
	body = binary.BigEndian.AppendUint16(body, d.Dst.Port())
	body = append(binary.BigEndian.AppendUint16(body, size), 0, 0)
	body = append(body, d.Text...)
	binary.BigEndian.PutUint16(body[6:],
		checksum(append(append(append([]byte{0, udp}, byte(size>>8), byte(size)), append(src, dst...)...), body...)))
	frame := append(append([]byte{}, d.DstMAC...), d.SrcMAC...)
	if d.Src.Addr().Is4() {
		head := binary.BigEndian.AppendUint16([]byte{0x45, 0}, 20+size)
		head = append(append(append(head, 0, 0, 0, 0, 64, udp, 0, 0), src...), dst...)
		binary.BigEndian.PutUint16(head[10:], checksum(head))
		return append(append(append(frame, 8, 0), head...), body...)
	}
	head := append(binary.BigEndian.AppendUint16([]byte{0x60, 0, 0, 0}, size), udp, 64)
	return append(append(append(append(append(frame, 0x86, 0xdd), head...), src...), dst...), body...)
}

func checksum(b []byte) uint16 {
	if len(b)%2 != 0 {
		b = append(b, 0)
	}
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// SendFrame sends a frame on a link, below all hooks of IP.
func SendFrame(t testing.TB, ns *netns.NS, link string, frame []byte) {
	t.Helper()
	fd, err := rawSocket(ns, link)
	if err == nil {
		_, err = unix.Write(fd, frame)
		_ = unix.Close(fd)
	}
	if err != nil {
		t.Fatalf("frame on %s: %v", link, err)
	}
}

// MAC returns the MAC address of a link; a nil namespace is the test's own.
func MAC(t testing.TB, ns *netns.NS, link string) net.HardwareAddr {
	t.Helper()
	var mac net.HardwareAddr
	read := func() error {
		i, err := net.InterfaceByName(link)
		if err == nil {
			mac = i.HardwareAddr
		}
		return err
	}
	err := error(nil)
	if ns == nil {
		err = read()
	} else {
		err = ns.Do(read)
	}
	if err != nil {
		t.Fatal(err)
	}
	return mac
}

// Listener receives UDP datagrams of both families.
type Listener struct{ four, six *net.UDPConn }

// Listen opens a Listener; a nil namespace is the test's own.
func Listen(t testing.TB, ns *netns.NS, port int) *Listener {
	t.Helper()
	e := &Listener{}
	open := func() (err error) {
		if e.four, err = net.ListenUDP("udp4", &net.UDPAddr{Port: port}); err == nil {
			e.six, err = net.ListenUDP("udp6", &net.UDPAddr{Port: port})
		}
		return err
	}
	err := error(nil)
	if ns == nil {
		err = open()
	} else {
		err = ns.Do(open)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = e.four.Close(), e.six.Close() })
	return e
}

// Receives reports whether a text arrives within limit, calling send repeatedly.
func (e *Listener) Receives(text string, limit time.Duration, send func()) bool {
	buf := make([]byte, 1<<12)
	for end := time.Now().Add(limit); time.Now().Before(end); {
		send()
		for _, conn := range []*net.UDPConn{e.four, e.six} {
			_ = conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
			for {
				n, _, err := conn.ReadFromUDP(buf)
				if err != nil {
					break
				}
				if string(buf[:n]) == text {
					return true
				}
			}
		}
	}
	return false
}
