// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"
)

// sender sends numbers to the peer, one per tick. It catches up after late ticks, so that the rate is constant.
type sender struct {
	conn    net.PacketConn
	every   time.Duration
	peer    atomic.Pointer[net.UDPAddr]
	sent    atomic.Uint64 // also the last number
	refused atomic.Uint64 // by the local kernel
	pause   atomic.Int64  // the longest time between two sends, in µs: the process was not scheduled
}

func (s *sender) setPeer(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 256))
	at, err := netip.ParseAddrPort(string(body))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.peer.Store(net.UDPAddrFromAddrPort(at))
}

func (s *sender) run(ctx context.Context) error {
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	var began, last time.Time
	var number, first uint64
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		peer := s.peer.Load()
		if peer == nil {
			began = time.Time{}
			continue
		}
		if began.IsZero() {
			began, first = time.Now(), number
			last = began
			s.pause.Store(0)
		}
		now := time.Now()
		s.pause.Store(max(s.pause.Load(), now.Sub(last).Microseconds()))
		last = now
		for due := first + uint64(time.Since(began)/s.every); number < due; {
			number++
			var b [8]byte
			binary.BigEndian.PutUint64(b[:], number)
			if _, err := s.conn.WriteTo(b[:], peer); err != nil {
				s.refused.Add(1)
			}
			s.sent.Store(number)
		}
	}
}
