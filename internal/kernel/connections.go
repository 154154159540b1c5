// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"net/netip"

	"github.com/weft-net/weft/internal/kernel/effect"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// connections are a namespace's conntrack entries.
type connections struct {
	ns      *netns.NS
	tracked effect.Conntrack
}

// FlushConntrack deletes the conntrack entries that choose selects, and returns them.
func (c *connections) FlushConntrack(choose func(state.Connection) bool) ([]state.Connection, error) {
	return c.tracked.Flush(c.ns, choose)
}

// FindConntrack returns the conntrack entries of the peers that choose selects.
func (c *connections) FindConntrack(
	peers []state.ConntrackPeer, choose func(state.Connection) bool,
) ([]FoundConnection, error) {
	return c.tracked.Find(c.ns, peers, choose)
}

// DeleteConntrack deletes conntrack entries that FindConntrack returned.
func (c *connections) DeleteConntrack(all []FoundConnection) error {
	return c.tracked.Delete(c.ns, all)
}

// FoundConnection is a conntrack entry that FindConntrack returned.
type FoundConnection = effect.Found

// ListConntrack returns the conntrack entries of TCP and UDP that choose selects.
func (c *connections) ListConntrack(choose func(state.Connection) bool) ([]state.ConntrackEntry, error) {
	return c.tracked.List(c.ns, choose)
}

// ListConntrackOf returns the conntrack entries of TCP and UDP whose originator or responder is one of the addresses. Of
// IPv4 only these are read.
func (c *connections) ListConntrackOf(addrs []netip.Addr) ([]state.ConntrackEntry, error) {
	return c.tracked.ListOf(c.ns, addrs)
}

// InsertConntrack inserts conntrack entries of another kernel. With longer it extends the timeouts of existing ones.
func (c *connections) InsertConntrack(all []state.ConntrackEntry, longer bool) error {
	return c.tracked.Insert(c.ns, all, longer)
}

// SetTCPLiberal makes conntrack accept all packets of TCP connections, also those outside the window that it has seen.
func (c *connections) SetTCPLiberal(all []state.ConntrackEntry) error {
	return c.tracked.SetTCPLiberal(c.ns, all)
}
