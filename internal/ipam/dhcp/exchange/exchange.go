// SPDX-License-Identifier: Apache-2.0

// Package exchange implements DHCP clients on a container's interface: DHCPv4 (RFC 2131) and DHCPv6 for one address
// (RFC 8415, IA_NA). It acquires, renews and releases a lease; package lease stores leases and their times.
//
// Sockets are opened inside the container's namespace by netns.Do and belong to it from then on, so no thread stays
// there. They are closed after one exchange: an open socket would keep the namespace of a deleted container alive.
//
// DHCPv4 uses whole frames over a packet socket: it works without an address, and independent of the container's own
// filters and sockets. DHCPv6 needs a link-local address and a UDP socket.
package exchange

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/weft-net/weft/internal/netns"
)

// ErrSilent is wrapped if no server responds.
var ErrSilent = errors.New("no DHCP server answered")

// ErrRefused is wrapped if a server reports that an address is not, or no longer, the client's.
var ErrRefused = errors.New("the DHCP server refused")

// Family is an address family.
type Family int

// These are the two families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// String returns "DHCPv4" or "DHCPv6".
func (f Family) String() string { return fmt.Sprintf("DHCPv%d", int(f)) }

// Option is a DHCPv4 option with its value.
type Option struct {
	Code  uint8
	Value []byte
}

// Identity is how a client identifies itself.
type Identity struct {
	// ID identifies the client: option 61 in IPv4 (unless Provide has that), hashed into the DUID in IPv6.
	ID string
	// Provide are sent with each message, Request are the requested options (IPv4).
	Provide []Option
	Request []uint8
	// Broadcast requests broadcast responses (IPv4).
	Broadcast bool
}

// Options are a client's clock, randomness and timeouts.
type Options struct {
	Now    func() time.Time
	Random io.Reader
	// Timeout limits the wait for a response to one message, ResendMax the pause between retransmissions, ResendTimeout
	// the whole exchange.
	Timeout, ResendMax, ResendTimeout time.Duration
}

// These are the reference daemon's limits.
const (
	Timeout       = 10 * time.Second
	ResendMax     = 62 * time.Second
	ResendTimeout = 208 * time.Second
)

// firstPause is the pause before the first retransmission; it doubles each time.
const firstPause = time.Second

// Client is a DHCP client of one interface and family.
type Client interface {
	// Acquire acquires a lease, of the wanted address if that is valid and the server agrees.
	Acquire(ctx context.Context, want netip.Addr) (Grant, error)
	// Renew extends a lease at its server or, to rebind, at any server. ErrRefused: the lease is void.
	Renew(ctx context.Context, g Grant, rebind bool) (Grant, error)
	// Release releases a lease.
	Release(ctx context.Context, g Grant) error
	Close() error
}

// Open opens a client on a link, which must be up.
func Open(ctx context.Context, ns *netns.NS, l Link, f Family, id Identity, w Options) (Client, error) {
	if f == IPv6 {
		return open6(ctx, ns, l, id, w)
	}
	return open4(ns, l, id, w)
}

// rounds computes the pauses between retransmissions: they double from the first to the longest, with a tenth of jitter
// so that many clients do not send at the same time.
type rounds struct {
	w    Options
	next time.Duration
}

func (w Options) rounds() *rounds { return &rounds{w: w, next: firstPause} }

// wait returns how long to wait for a response now. It does not exceed the time left for the exchange.
func (r *rounds) wait(end time.Time) time.Duration {
	d := min(r.next, r.w.Timeout, end.Sub(r.w.Now()))
	r.next = min(2*r.next, max(r.w.ResendMax, firstPause))
	return d + time.Duration(float64(d)*(float64(r.w.number()%200)-100)/1000)
}

func (w Options) number() uint32 {
	var b [4]byte
	if _, err := io.ReadFull(w.Random, b[:]); err != nil {
		return 0 // only a test's source can fail
	}
	return binary.BigEndian.Uint32(b[:])
}

// timedOut returns the error of an exchange without a response.
func timedOut(ctx context.Context, f Family, l Link) error {
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("%s on %s: %w: %w", f, l.Name, ErrSilent, err)
	}
	return fmt.Errorf("%s on %s: %w", f, l.Name, ErrSilent)
}
