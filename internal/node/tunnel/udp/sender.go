// SPDX-License-Identifier: Apache-2.0

package udp

import (
	"golang.org/x/sys/unix"
)

const (
	maxMessages = 64
	// maxSegments is the kernel's maximum of datagrams in one message.
	maxSegments = 64
	// maxMessage is the maximum length of such a message without headers, in bytes.
	maxMessage = 65535 - ipv6Len - udpLen
	// searchDepth is how many of the last messages, or groups of packets, are searched for one that a packet can join.
	searchDepth = 8
)

// segmentSize is the control message that makes the kernel cut a message into datagrams (UDP_SEGMENT).
type segmentSize struct {
	head unix.Cmsghdr
	size uint16
	_    [6]byte
}

// message is one or more datagrams to one node: all have the same size, except for the last, which may be smaller.
type message struct {
	to          *target
	size        int // of a datagram
	bytes       int
	pieces      []unix.Iovec
	offsets     []int // of each datagram, in pieces
	full        bool
	segmentSize segmentSize
}

// batchSender batches datagrams.
type batchSender struct {
	sock     *socket
	messages [maxMessages]message
	n        int
	heads    [maxMessages]mmsghdr
	single   [maxSegments]mmsghdr
	stats    *Stats
}

func newBatchSender(s *socket, stats *Stats) *batchSender {
	m := &batchSender{sock: s, stats: stats}
	for i := range m.messages {
		h := &m.messages[i].segmentSize
		h.head.Level, h.head.Type = unix.SOL_UDP, unix.UDP_SEGMENT
		h.head.SetLen(unix.CmsgLen(2))
	}
	return m
}

// add adds a datagram of one or two pieces. They must not be changed until flush.
func (m *batchSender) add(to *target, head, body []byte) {
	size := len(head) + len(body)
	msg := m.latest(to)
	if msg == nil || msg.full || !m.sock.cuts || size > msg.size || len(msg.offsets) == maxSegments ||
		msg.bytes+size > maxMessage {
		if m.n == maxMessages {
			m.flush()
		}
		msg = &m.messages[m.n]
		m.n++
		msg.to, msg.size, msg.bytes, msg.full = to, size, 0, false
		msg.pieces, msg.offsets = msg.pieces[:0], msg.offsets[:0]
	}
	msg.full = size < msg.size
	msg.bytes += size
	msg.piece(head)
	if len(body) > 0 {
		msg.piece(body)
	}
	msg.offsets = append(msg.offsets, len(msg.pieces))
}

func (m *message) piece(b []byte) {
	v := unix.Iovec{Base: &b[0]}
	v.SetLen(len(b))
	m.pieces = append(m.pieces, v)
}

// latest returns the last message to a node: datagrams of one connection must not be reordered, so that no earlier
// message can be extended.
func (m *batchSender) latest(to *target) *message {
	for i := m.n - 1; i >= max(0, m.n-searchDepth); i-- {
		if m.messages[i].to == to {
			return &m.messages[i]
		}
	}
	return nil
}

// flush sends everything.
func (m *batchSender) flush() {
	if m.n == 0 {
		return
	}
	var packets, bytes uint64
	for i := range m.n {
		msg := &m.messages[i]
		m.heads[i].head = msg.head(0, len(msg.pieces))
		if len(msg.offsets) > 1 {
			msg.segmentSize.size = uint16(msg.size)
			m.heads[i].head.Control = (*byte)(ptr(&msg.segmentSize))
			m.heads[i].head.SetControllen(unix.CmsgSpace(2))
		}
		packets += uint64(len(msg.offsets))
		bytes += uint64(msg.bytes)
	}
	for sent := 0; sent < m.n; {
		n, errno := m.sock.send(m.heads[sent:m.n])
		switch errno {
		case 0:
			sent += n
		case unix.EINTR:
		default:
			m.rescue(&m.messages[sent], errno)
			sent++
		}
	}
	m.n = 0
	m.stats.Sent.Add(packets)
	m.stats.SentBytes.Add(bytes)
}

func (m *message) head(from, to int) unix.Msghdr {
	h := unix.Msghdr{Name: (*byte)(m.to.name), Namelen: m.to.nameLen, Iov: &m.pieces[from]}
	h.SetIovlen(to - from)
	return h
}

// rescue sends the datagrams of a message one by one: the path MTU may have decreased, or the route may use a device
// without segmentation.
func (m *batchSender) rescue(msg *message, why unix.Errno) {
	if len(msg.offsets) == 1 {
		m.stats.unsent(1, why)
		return
	}
	if why == unix.EIO {
		m.sock.cuts = false // the kernel's error for a device without checksum offload
	}
	from := 0
	for i, end := range msg.offsets {
		m.single[i].head = msg.head(from, end)
		from = end
	}
	for sent := 0; sent < len(msg.offsets); {
		n, errno := m.sock.send(m.single[sent:len(msg.offsets)])
		switch errno {
		case 0:
			sent += n
		case unix.EINTR:
		default:
			m.stats.unsent(1, errno)
			sent++
		}
	}
}
