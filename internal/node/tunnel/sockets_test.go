// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
)

// unsent is a Bind that takes packets, and receives those of its channel.
type unsent struct {
	conn.Bind
	arriving chan []byte
	from     conn.Endpoint
}

func (unsent) Send([][]byte, conn.Endpoint) error { return nil }

func (n unsent) Open(uint16) ([]conn.ReceiveFunc, uint16, error) {
	return []conn.ReceiveFunc{func(packets [][]byte, sizes []int, from []conn.Endpoint) (int, error) {
		sizes[0], from[0] = copy(packets[0], <-n.arriving), n.from
		return 1, nil
	}}, 0, nil
}

// TestCrossing: of two initiations that cross, one node drops the other's and the other node does not; nothing else is
// dropped, nor is an initiation of a node that did not get the own one.
func TestCrossing(t *testing.T) {
	first := func(kind byte, size int, fill byte) []byte {
		return append([]byte{kind}, bytes.Repeat([]byte{fill}, size-1)...)
	}
	low := first(device.MessageInitiationType, device.MessageInitiationSize, 1)
	high := first(device.MessageInitiationType, device.MessageInitiationSize, 2)
	at := &conn.StdNetEndpoint{AddrPort: netip.MustParseAddrPort("192.168.0.2:51820")}
	third := &conn.StdNetEndpoint{AddrPort: netip.MustParseAddrPort("192.168.0.3:51820")}
	for _, c := range []struct {
		name      string
		sent, got []byte
		to        conn.Endpoint
		after     time.Duration
		dropped   bool
	}{
		{"the own one takes precedence", low, high, at, 0, true},
		{"the peer's takes precedence", high, low, at, 0, false},
		{"there was time to reply", low, high, at, replyTime, false},
		{"of another node", low, high, third, 0, false},
		{"a response", low, first(device.MessageResponseType, device.MessageResponseSize, 2), at, 0, false},
		{"a packet of its size", low, first(device.MessageTransportType, device.MessageInitiationSize, 2), at, 0, false},
		{"after a response", first(device.MessageResponseType, device.MessageResponseSize, 1), high, at, 0, false},
	} {
		now := time.Unix(1, 0)
		arriving := make(chan []byte, 1)
		s := newSockets(nil, func() time.Time { return now })
		s.Bind = unsent{arriving: arriving, from: at}
		receive, _, err := s.Open(0)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Send([][]byte{c.sent}, c.to); err != nil {
			t.Fatal(err)
		}
		now = now.Add(c.after)
		arriving <- c.got
		sizes, from := make([]int, 1), make([]conn.Endpoint, 1)
		if n, err := receive[0]([][]byte{make([]byte, 2048)}, sizes, from); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if dropped := sizes[0] == 0; dropped != c.dropped {
			t.Errorf("%s: dropped: %v, want %v", c.name, dropped, c.dropped)
		}
	}
}
