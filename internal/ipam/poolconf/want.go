// SPDX-License-Identifier: Apache-2.0

package poolconf

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/ipam/addrspan"
)

// Want is a request for one address.
type Want struct {
	// Pool is the name of the pool that has it.
	Pool string
	// Grow allows creating the pool, or adding the network to it.
	Grow bool
	// Network is the subnet of the address; Spans are the acceptable addresses in it.
	Network netip.Prefix
	Spans   []addrspan.Span
	// Addr, if valid, is the only acceptable address.
	Addr netip.Addr
	// Claim is the ID of the claim that owns Addr.
	Claim string
	// VM: the claim is a virtual machine's, which is to run in Pod ("namespace/name").
	VM  bool
	Pod string
	// Alias is network_name in the configuration.
	Alias string
	// Field names the place in the configuration, or the object, for messages.
	Field string
	// name caches ID.
	name string
}

// CacheID computes the result of ID once, for a want that is used often.
func (w *Want) CacheID() { w.name = w.ID() }

// ID identifies the set of acceptable addresses.
func (w Want) ID() string {
	if w.name != "" {
		return w.name
	}
	words := make([]string, 0, len(w.Spans))
	for _, s := range w.Spans {
		words = append(words, s.String())
	}
	return strings.Join(words, ",")
}

// Overlaps reports whether a block has acceptable addresses, as far as Spans say.
func (w Want) Overlaps(cidr netip.Prefix) bool {
	return slices.ContainsFunc(w.Spans, func(s addrspan.Span) bool { return s.Overlaps(cidr) })
}

// Allows reports whether an address is acceptable.
func (w Want) Allows(a netip.Addr) bool {
	return addrspan.In(w.Spans, a) && (!w.Addr.IsValid() || a == w.Addr)
}
