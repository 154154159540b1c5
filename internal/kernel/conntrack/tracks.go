// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/netns"
)

// probeWait is how long the event of a datagram is waited for. Where connections are tracked it is there when the datagram
// is sent.
const probeWait = 200 * time.Millisecond

// Tracks reports whether ns (nil: the process's own namespace) tracks connections of a family, which it does as long as a
// rule uses connection tracking. It sends a datagram on the loopback interface, which must be up, to a port that it owns.
// Without the family there is an error.
func (s *Source) Tracks(ctx context.Context, ns *netns.NS, v6 bool) (tracks bool, err error) {
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if v6 {
		loopback = netip.IPv6Loopback()
	}
	var to, from *net.UDPConn
	err = ns.Do(func() (err error) {
		if to, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(loopback, 0))); err != nil {
			return err
		}
		from, err = net.DialUDP("udp", nil, to.LocalAddr().(*net.UDPAddr))
		return err
	})
	for _, c := range []*net.UDPConn{to, from} {
		if c != nil {
			defer func() { err = errors.Join(err, c.Close()) }()
		}
	}
	if err != nil {
		return false, fmt.Errorf("conntrack: datagram on the loopback interface: %w", err)
	}
	src := from.LocalAddr().(*net.UDPAddr).AddrPort()
	seen := make(chan struct{}, 1)
	l, err := s.Listen(ctx, ns, func(all []Event) {
		if slices.ContainsFunc(all, func(e Event) bool { return e.Kind == New && e.Src == src }) {
			select {
			case seen <- struct{}{}:
			default:
			}
		}
	})
	if err != nil {
		return false, err
	}
	defer l.Close()
	if _, err := from.Write([]byte{0}); err != nil {
		return false, fmt.Errorf("conntrack: datagram on the loopback interface: %w", err)
	}
	select {
	case <-seen:
		return true, nil
	case <-time.After(probeWait):
	case <-ctx.Done():
	}
	return false, ctx.Err()
}
