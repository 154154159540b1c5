// SPDX-License-Identifier: Apache-2.0

package udp

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/node/tunnel/tun"
)

func ptr[T any](p *T) unsafe.Pointer { return unsafe.Pointer(p) }

const (
	frame = vnetLen + 65535 // the longest packet with its header
	// slabLen is how many bytes are read before packets are sent, and maxRead how many packets.
	slabLen = 4 * frame
	maxRead = 64
	// headsLen is the size of the buffer for the headers of segments, headMax the longest headers: IPv6 or IPv4 and TCP
	// with options.
	headsLen = 64 << 10
	headMax  = 60 + 60
)

// encap forwards packets from the device to the underlay.
type encap struct {
	dev    device
	stop   int // a descriptor that is readable after the end
	raw    int // a raw socket
	table  *atomic.Pointer[table]
	route  route
	out    *batchSender
	answer *answerer
	slab   []byte
	heads  []byte
	used   int // of heads
	stats  *Stats
}

// run forwards until stop is readable.
func (o *encap) run() error {
	o.slab, o.heads = make([]byte, slabLen), make([]byte, headsLen)
	busy, turn := false, turns(0)
	waiting := []unix.PollFd{{Fd: int32(o.dev.fd), Events: unix.POLLIN}, {Fd: int32(o.stop), Events: unix.POLLIN}}
	for {
		turn.next()
		n, err := o.batch(busy)
		if err != nil {
			return err
		}
		if busy = n > 1; busy {
			continue // there may be more packets
		}
		// After a single packet poll blocks; a read before would usually fail.
		if _, err := unix.Poll(waiting, -1); err != nil && err != unix.EINTR {
			return fmt.Errorf("poll: %w", err)
		}
		if waiting[1].Revents != 0 {
			return nil
		}
	}
}

// batch forwards the waiting packets and returns how many there were. Unless there were several the last time, the
// first packet is sent before the next read.
func (o *encap) batch(busy bool) (int, error) {
	at, n := 0, 0
	for n < maxRead && at+frame <= len(o.slab) {
		size, errno := o.dev.read(o.slab[at : at+frame])
		if errno == unix.EAGAIN {
			break
		}
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			o.out.flush()
			if gone(errno) {
				return n, fmt.Errorf("read: %w (%w)", tun.ErrMissing, errno)
			}
			return n, fmt.Errorf("read: %w", errno)
		}
		n++
		if size > vnetLen {
			o.carry(o.slab[at : at+size])
		}
		if n == 1 && !busy {
			o.out.flush()
		}
		at += (size + 63) &^ 63
	}
	o.out.flush()
	o.used = 0
	return n, nil
}

// carry forwards one packet.
func (o *encap) carry(b []byte) {
	var h vnet
	h.read(b)
	p, ok := parse(b[vnetLen:])
	if !ok {
		o.stats.Malformed.Add(1)
		return
	}
	to := o.route.find(o.table.Load(), keyOf(p.dst()))
	switch {
	case to == nil:
		o.stats.NoRoute.Add(1)
		o.sendICMPError(&p, noRoute())
	case !p.age():
		o.stats.Expired.Add(1)
		o.sendICMPError(&p, expired())
	case h.gso&^gsoECN != gsoNone:
		o.cut(&p, &h, to)
	default:
		if h.flags&needsCsum != 0 && !finish(&p, &h) {
			o.stats.Malformed.Add(1)
			return
		}
		o.out.add(to, p.b, nil)
	}
}

// sendICMPError sends an ICMP error to the sender, which is on this node. In IPv4 the kernel drops packets from a
// device with the node's own address as their source, so the error is sent from a raw socket.
func (o *encap) sendICMPError(p *packet, c icmpError) {
	a := o.answer.icmpErrorFor(p, c)
	switch {
	case a == nil:
	case !p.v6:
		_ = unix.Sendto(o.raw, a, unix.MSG_DONTWAIT, &unix.SockaddrInet4{Addr: [4]byte(p.src())}) // a lost error is harmless
	default:
		var none [vnetLen]byte
		pieces := []unix.Iovec{{Base: &none[0]}, {Base: &a[0]}}
		pieces[0].SetLen(vnetLen)
		pieces[1].SetLen(len(a))
		_ = o.dev.write(pieces)
	}
}

// finish computes the checksum that the kernel has offloaded: its field has the sum of the pseudo header.
func finish(p *packet, h *vnet) bool {
	start, place := int(h.csumStart), int(h.csumStart)+int(h.csumOffset)
	if start < p.head || place+2 > len(p.b) {
		return false
	}
	s := fold(sum(p.b[start:], 0))
	if s == 0xffff && p.proto == protoUDP {
		s = 0 // in UDP, zero means that there is no checksum
	}
	binary.NativeEndian.PutUint16(p.b[place:], ^s)
	return true
}

// cut segments a large packet to the MTU.
func (o *encap) cut(p *packet, h *vnet, to *target) {
	l4, proto, place, least := int(h.csumStart), byte(protoTCP), 16, tcpLen
	head := 0
	switch kind := h.gso &^ gsoECN; {
	case kind == gsoUDP:
		proto, place, least, head = protoUDP, 6, udpLen, l4+udpLen
	case (kind == gsoTCP4 || kind == gsoTCP6) && l4+tcpLen <= len(p.b):
		head = l4 + int(p.b[l4+12]>>4)*4
	}
	size := int(h.gsoSize)
	if l4 < p.head || head < l4+least || head > len(p.b) || head > headMax || size == 0 {
		o.stats.Malformed.Add(1)
		return
	}
	rest := p.b[head:]
	for i := 0; len(rest) > 0; i++ {
		if o.used+head > len(o.heads) {
			o.out.flush()
			o.used = 0
		}
		b := o.heads[o.used : o.used+head]
		o.used += head
		copy(b, p.b[:head])
		body := rest[:min(size, len(rest))]
		rest = rest[len(body):]
		if p.v6 {
			binary.BigEndian.PutUint16(b[4:], uint16(head+len(body)-ipv6Len))
		} else {
			binary.BigEndian.PutUint16(b[2:], uint16(head+len(body)))
			binary.BigEndian.PutUint16(b[4:], binary.BigEndian.Uint16(b[4:])+uint16(i))
			seal(b[:p.head])
		}
		upper := b[l4:]
		if proto == protoTCP {
			binary.BigEndian.PutUint32(upper[4:], binary.BigEndian.Uint32(upper[4:])+uint32(i*size))
			upper[13] &^= notLater(i) | notEarlier(len(rest))
		} else {
			binary.BigEndian.PutUint16(upper[4:], uint16(udpLen+len(body)))
		}
		upper[place], upper[place+1] = 0, 0
		s := fold(sum(body, sum(upper, pseudo(b, p.v6, proto, len(upper)+len(body)))))
		if s == 0xffff && proto == protoUDP {
			s = 0
		}
		binary.NativeEndian.PutUint16(upper[place:], ^s)
		o.out.add(to, b, body)
	}
}

// notLater returns the flag that only the first segment keeps (CWR), notEarlier those of the last (FIN, PSH).
func notLater(i int) byte {
	if i > 0 {
		return 0x80
	}
	return 0
}

func notEarlier(rest int) byte {
	if rest > 0 {
		return 0x01 | 0x08
	}
	return 0
}
