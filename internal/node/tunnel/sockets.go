// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"

	"github.com/weft-net/weft/internal/netns"
)

// sockets are the UDP sockets of WireGuard in user space, in a namespace. Of two initiations of a session that cross, they
// let only one through: device may handle the other one at the same moment as the response to its own, and then uses a
// session whose packets from the peer it cannot decrypt, for 15 s.
type sockets struct {
	conn.Bind
	ns  *netns.NS
	now func() time.Time

	mu sync.Mutex
	// sent are the last initiations, by the address of the peer: those since a time, and those of replyTime before it.
	sent, before map[string]initiation
	since        time.Time
}

// initiation is one that was sent. A peer that received it has replied within replyTime, or does not know this node.
type initiation struct {
	ephemeral []byte
	at        time.Time
}

const replyTime = firstTurn

func newSockets(ns *netns.NS, now func() time.Time) *sockets {
	return &sockets{Bind: conn.NewDefaultBind(), ns: ns, now: now, sent: map[string]initiation{}}
}

func (s *sockets) Open(port uint16) (fns []conn.ReceiveFunc, actual uint16, err error) {
	err = s.ns.Do(func() (err error) {
		fns, actual, err = s.Bind.Open(port)
		return err
	})
	for i, receive := range fns {
		fns[i] = func(packets [][]byte, sizes []int, from []conn.Endpoint) (int, error) {
			n, err := receive(packets, sizes, from)
			for i := range n {
				if e := ephemeral(packets[i][:sizes[i]]); e != nil && s.crosses(e, from[i].DstToString()) {
					sizes[i] = 0 // conn.ReceiveFunc: it is ignored
				}
			}
			return n, err
		}
	}
	return fns, actual, err
}

func (s *sockets) Send(packets [][]byte, to conn.Endpoint) error {
	for _, p := range packets {
		if e := ephemeral(p); e != nil {
			s.record(to.DstToString(), e)
		}
	}
	return s.Bind.Send(packets, to)
}

// record remembers an initiation. Those of nodes that are gone are forgotten.
func (s *sockets) record(to string, e []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if now.Sub(s.since) >= replyTime {
		s.before, s.sent, s.since = s.sent, map[string]initiation{}, now
	}
	s.sent[to] = initiation{bytes.Clone(e), now}
}

// crosses reports whether an initiation crosses an own one that takes precedence. The other node decides the other way
// around: the lower ephemeral key takes precedence.
func (s *sockets) crosses(received []byte, from string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	own, ok := s.sent[from]
	if !ok {
		own, ok = s.before[from]
	}
	return ok && s.now().Sub(own.at) < replyTime && bytes.Compare(own.ephemeral, received) < 0
}

// ephemeral returns the unencrypted ephemeral key of an initiation (section 5.4.2 of the WireGuard paper), and nil for other
// messages.
func ephemeral(packet []byte) []byte {
	if len(packet) != device.MessageInitiationSize || packet[0] != device.MessageInitiationType {
		return nil
	}
	return packet[8:40]
}
