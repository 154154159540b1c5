// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/weft-net/weft/internal/model"
)

// Grant is a lease in the form of a server's message, which can be stored.
type Grant struct {
	Family Family `json:"family"`
	// Packet is the server's last message: a DHCPACK, or a DHCPv6 reply.
	Packet []byte `json:"packet"`
	// From is the MAC address of the sender (IPv4).
	From []byte `json:"from,omitempty"`
	// Bound is when it was received.
	Bound time.Time `json:"bound"`
}

// Lease is the content of a Grant.
type Lease struct {
	Address netip.Prefix
	Gateway netip.Addr
	Routes  []model.Route
	DNS     model.DNS
	// MTU is the network's MTU, in bytes; 0 if the server does not send it.
	MTU int
	// Server is the server's address (IPv4).
	Server netip.Addr
	// From Renew on the client renews the lease at its server, from Rebind on at any server; at Expire it ends. Zero means
	// never.
	Renew, Rebind, Expire time.Time
}

// Lease decodes the server's message.
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

// terms sets the times of a lease. Times that the server does not send, or sends in the wrong order, are computed.
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
