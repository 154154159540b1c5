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

const (
	// slots is how many messages are received in one call; each may have many datagrams of one sender.
	slots   = 16
	slotLen = 65536
)

// joined is the control message with the size of the datagrams in a message (UDP_GRO).
type joined struct {
	head unix.Cmsghdr
	size int32
	_    [4]byte
}

// decap forwards packets from the underlay to the device.
type decap struct {
	dev    device
	sock   *socket
	over   *atomic.Bool
	table  *atomic.Pointer[table]
	accept *atomic.Pointer[acceptor]
	sender sender // of the current message
	route  route
	batch  *batchSender // for errors to senders on other nodes
	answer *answerer
	gro    groCoalescer
	slots  [slots]mmsghdr
	names  [slots]unix.RawSockaddrInet6 // large enough for IPv4, too
	bufs   [slots][]byte
	pieces [slots]unix.Iovec
	said   [slots]joined
	stats  *Stats
}

// run forwards until the path is closed.
func (w *decap) run() error {
	for i := range w.slots {
		w.bufs[i] = make([]byte, slotLen)
		w.pieces[i].Base = &w.bufs[i][0]
		w.pieces[i].SetLen(slotLen)
	}
	wait, turn, used := true, turns(0), slots
	for {
		turn.next()
		for i := range w.slots[:used] {
			h := &w.slots[i].head
			h.Name, h.Namelen = (*byte)(ptr(&w.names[i])), unix.SizeofSockaddrInet6
			h.Iov = &w.pieces[i]
			h.SetIovlen(1)
			h.Control = (*byte)(ptr(&w.said[i]))
			h.SetControllen(int(unsafe.Sizeof(w.said[i])))
		}
		n, errno := w.sock.receive(w.slots[:], wait)
		if used = 0; errno == 0 {
			used = n
		}
		if w.over.Load() {
			return nil
		}
		switch errno {
		case 0:
		case unix.EAGAIN:
			wait = true
			continue
		case unix.EINTR, unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH:
			continue
		default:
			return fmt.Errorf("receive: %w", errno)
		}
		for i := range n {
			w.slot(i)
		}
		w.batch.flush()
		if err := w.flush(); err != nil {
			return err
		}
		wait = n == 1 // block after a single packet
	}
}

// slot forwards the datagrams of one message.
func (w *decap) slot(i int) {
	length := int(w.slots[i].n)
	b := w.bufs[i][:min(length, slotLen)]
	size := len(b)
	if w.slots[i].head.Controllen > 0 && w.said[i].head.Level == unix.SOL_UDP && w.said[i].head.Type == unix.UDP_GRO &&
		w.said[i].size > 0 {
		size = int(w.said[i].size)
	}
	w.sender = w.accept.Load().sender(nodeOf(&w.names[i]))
	w.stats.ReceivedBytes.Add(uint64(len(b)))
	count := uint64(0)
	for len(b) > 0 {
		n := min(size, len(b))
		w.carry(b[:n])
		b = b[n:]
		count++
	}
	w.stats.Received.Add(count)
}

// carry forwards one packet to the device.
func (w *decap) carry(b []byte) {
	p, ok := parse(b)
	if !ok {
		w.stats.Malformed.Add(1)
		return
	}
	if !w.sender.may(&p) {
		w.stats.Refused.Add(1)
		return
	}
	if !p.age() {
		w.stats.Expired.Add(1)
		w.sendICMPError(&p)
		return
	}
	if w.gro.full() {
		_ = w.flush() // a persistent error occurs again
	}
	w.gro.add(&p)
}

// sendICMPError sends an ICMP error to the sender, which is on another node.
func (w *decap) sendICMPError(p *packet) {
	a := w.answer.icmpErrorFor(p, expired())
	if a == nil {
		return
	}
	q, _ := parse(a)
	if to := w.route.find(w.table.Load(), keyOf(q.dst())); to != nil {
		w.batch.add(to, a, nil)
		w.batch.flush()
	}
}

// flush writes the merged packets.
func (w *decap) flush() error {
	for i := range w.gro.n {
		errno := w.dev.write(w.gro.groups[i].pack())
		switch {
		case errno == 0:
		case gone(errno):
			w.gro.n = 0
			return fmt.Errorf("write: %w (%w)", tun.ErrMissing, errno)
		default: // the device is down (EIO), or the packet is invalid for the kernel
			w.stats.Unwritten.Add(uint64(w.gro.groups[i].n))
		}
	}
	w.gro.n = 0
	return nil
}

// seq returns a TCP packet's sequence number.
func seq(p *packet) uint32 { return binary.BigEndian.Uint32(p.b[p.head+4:]) }
