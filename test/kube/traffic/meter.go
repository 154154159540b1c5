// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Report is what was received from the peer since the last reset.
type Report struct {
	First    uint64 `json:"first"`
	Last     uint64 `json:"last"`
	Received uint64 `json:"received"`
	Twice    uint64 `json:"twice"`
	Lost     uint64 `json:"lost"`     // missing numbers between first and last
	GapMicro int64  `json:"gapMicro"` // the longest gap, including the current one
}

// meter records the received numbers.
type meter struct {
	mu   sync.Mutex
	seen map[uint64]bool
	r    Report
	at   time.Time // of the last datagram
}

func newMeter() *meter { return &meter{seen: map[uint64]bool{}} }

func (m *meter) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen, m.r, m.at = map[uint64]bool{}, Report{}, time.Time{}
}

func (m *meter) receive(conn net.PacketConn) error {
	var b [64]byte
	for {
		n, _, err := conn.ReadFrom(b[:])
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err == nil && n == 8 {
			m.take(binary.BigEndian.Uint64(b[:8]), time.Now())
		}
	}
}

func (m *meter) take(number uint64, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen[number] {
		m.r.Twice++
		return
	}
	m.seen[number] = true
	if m.r.Received++; m.r.Received == 1 {
		m.r.First, m.r.Last = number, number
	} else {
		m.r.First, m.r.Last = min(m.r.First, number), max(m.r.Last, number)
		m.r.GapMicro = max(m.r.GapMicro, now.Sub(m.at).Microseconds())
	}
	m.at = now
}

func (m *meter) report(now time.Time) Report {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.r
	if r.Received > 0 {
		r.Lost = r.Last - r.First + 1 - r.Received
		r.GapMicro = max(r.GapMicro, now.Sub(m.at).Microseconds())
	}
	return r
}

// dropped returns the datagrams that were dropped because the socket's buffer was full: the network has not lost them.
func dropped() uint64 {
	b, _ := os.ReadFile("/proc/net/snmp")
	var names []string
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "Udp:" {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		for i, name := range names {
			if name == "RcvbufErrors" && i < len(fields) {
				n, _ := strconv.ParseUint(fields[i], 10, 64)
				return n
			}
		}
	}
	return 0
}
