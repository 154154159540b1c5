// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/weft-net/weft/internal/model"
)

// Grant is a lease as its server gave it, in a form that can be kept.
type Grant struct {
	Family Family `json:"family"`
	// Packet is the server's last word: a DHCPACK, or a DHCPv6 reply.
	Packet []byte `json:"packet"`
	// From is the hardware address that it came from (IPv4).
	From []byte `json:"from,omitempty"`
	// Bound is when it came.
	Bound time.Time `json:"bound"`
}

// Lease is what a Grant says.
type Lease struct {
	Address netip.Prefix
	Gateway netip.Addr
	Routes  []model.Route
	DNS     model.DNS
	// MTU is the wire's, in bytes; 0 when the server does not say.
	MTU int
	// Server is the server's address (IPv4).
	Server netip.Addr
	// From Renew on its server is asked for more time, from Rebind on every server; at Expire it ends. The zero time:
	// never.
	Renew, Rebind, Expire time.Time
}

// Lease reads the server's words.
func (g Grant) Lease() (Lease, error) {
	var l Lease
	var err error
	switch g.Family {
	case IPv4:
		l, err = read4(g.Packet, g.Bound)
	case IPv6:
		l, err = read6(g.Packet, g.Bound)
	default:
		err = fmt.Errorf("family %d", g.Family)
	}
	if err != nil {
		return l, fmt.Errorf("answer of the DHCP server: %w", err)
	}
	return l, nil
}

// infinite is the length of a lease that never ends.
const infinite = 0xffffffff * time.Second

// terms sets when a lease is due. What the server does not say, or says in the wrong order, is reckoned.
func (l *Lease) terms(bound time.Time, lease, renew, rebind time.Duration, rebindPart float64) {
	if lease >= infinite {
		return
	}
	if rebind <= 0 || rebind > lease {
		rebind = time.Duration(float64(lease) * rebindPart)
	}
	if renew <= 0 || renew > rebind {
		renew = min(lease/2, rebind)
	}
	l.Renew, l.Rebind, l.Expire = bound.Add(renew), bound.Add(rebind), bound.Add(lease)
}
