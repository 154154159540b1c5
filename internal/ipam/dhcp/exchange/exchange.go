// SPDX-License-Identifier: Apache-2.0

// Package exchange speaks DHCP with the servers on a container's wire: DHCPv4 (RFC 2131) and DHCPv6 for one address
// (RFC 8415, IA_NA). It gets a lease, renews it and gives it back; who remembers leases and when they are due is
// lease's business.
//
// Sockets are opened inside the container's namespace by netns.Do and belong to it from then on, so no thread stays
// there. They live as long as one exchange: a socket that is kept would keep the namespace of a dead container alive.
//
// DHCPv4 is spoken in whole frames over a packet socket: it works without an address, and past the container's own
// filters and sockets. DHCPv6 needs a link-local address and an ordinary socket.
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

// ErrSilent is wrapped when no server answered.
var ErrSilent = errors.New("no DHCP server answered")

// ErrRefused is wrapped when a server says that an address is not, or no longer, the client's.
var ErrRefused = errors.New("the DHCP server refused")

// Family is an address family.
type Family int

// The two families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// String is "DHCPv4" or "DHCPv6".
func (f Family) String() string { return fmt.Sprintf("DHCPv%d", int(f)) }

// Option is a DHCPv4 option with its value.
type Option struct {
	Code  uint8
	Value []byte
}

// Identity is what a client says of itself.
type Identity struct {
	// ID names the client: option 61 in IPv4 (unless Provide has that), hashed into the DUID in IPv6.
	ID string
	// Provide are sent with each message, Request are asked for (IPv4).
	Provide []Option
	Request []uint8
	// Broadcast asks the server to broadcast its answers (IPv4).
	Broadcast bool
}

// World is what a client needs beside the wire.
type World struct {
	Now    func() time.Time
	Random io.Reader
	// Timeout bounds the wait for an answer to one message, ResendMax the pause before a message is sent again,
	// ResendTimeout everything.
	Timeout, ResendMax, ResendTimeout time.Duration
}

// The reference daemon's limits.
const (
	Timeout       = 10 * time.Second
	ResendMax     = 62 * time.Second
	ResendTimeout = 208 * time.Second
)

// firstPause is how long an answer may take before the message is sent again; it doubles each time.
const firstPause = time.Second

// Client speaks for one interface and family.
type Client interface {
	// Acquire gets a lease, of the wanted address if that is valid and the server likes to.
	Acquire(ctx context.Context, want netip.Addr) (Grant, error)
	// Renew extends a lease: by asking its server or, to rebind, any server. ErrRefused: the lease is void.
	Renew(ctx context.Context, g Grant, rebind bool) (Grant, error)
	// Release gives a lease back.
	Release(ctx context.Context, g Grant) error
	Close() error
}

// Open opens a client on a link, which must be up.
func Open(ctx context.Context, ns *netns.NS, l Link, f Family, id Identity, w World) (Client, error) {
	if f == IPv6 {
		return open6(ctx, ns, l, id, w)
	}
	return open4(ns, l, id, w)
}

// rounds are the pauses between repetitions: they double from the first to the longest, shaken by a tenth so that many
// clients do not speak in one breath.
type rounds struct {
	w    World
	next time.Duration
}

func (w World) rounds() *rounds { return &rounds{w: w, next: firstPause} }

// wait is how long to listen now. It is never longer than what is left of the whole.
func (r *rounds) wait(end time.Time) time.Duration {
	d := min(r.next, r.w.Timeout, end.Sub(r.w.Now()))
	r.next = min(2*r.next, max(r.w.ResendMax, firstPause))
	return d + time.Duration(float64(d)*(float64(r.w.number()%200)-100)/1000)
}

func (w World) number() uint32 {
	var b [4]byte
	if _, err := io.ReadFull(w.Random, b[:]); err != nil {
		return 0 // the kernel's source does not fail; a shorter one is a test's
	}
	return binary.BigEndian.Uint32(b[:])
}

// ended is the error of an exchange that was given up.
func ended(ctx context.Context, f Family, l Link) error {
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("%s on %s: %w: %w", f, l.Name, ErrSilent, err)
	}
	return fmt.Errorf("%s on %s: %w", f, l.Name, ErrSilent)
}
