// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"github.com/weft-net/weft/internal/kernel/effect"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// connections are the tracked connections of a namespace.
type connections struct {
	ns      *netns.NS
	tracked effect.Tracker
}

// Cut forgets the tracked connections that are chosen, and gives them.
func (c *connections) Cut(choose func(state.Connection) bool) ([]state.Connection, error) {
	return c.tracked.Cut(c.ns, choose)
}

// Find gives those tracked connections of parties that are chosen, Forget has them be forgotten.
func (c *connections) Find(parties []state.Party, choose func(state.Connection) bool) ([]Found, error) {
	return c.tracked.Find(c.ns, parties, choose)
}

// Forget has the kernel forget connections that were found.
func (c *connections) Forget(all []Found) error { return c.tracked.Forget(c.ns, all) }

// Found is a tracked connection that was looked for.
type Found = effect.Found

// Tracked gives the connections of TCP and UDP that are chosen.
func (c *connections) Tracked(choose func(state.Connection) bool) ([]state.Tracked, error) {
	return c.tracked.List(c.ns, choose)
}

// Track has connections tracked that another kernel has tracked. Of those that are known the time is lengthened, if
// longer.
func (c *connections) Track(all []state.Tracked, longer bool) error {
	return c.tracked.Track(c.ns, all, longer)
}

// Loosen has all packets of connections count, also those outside of the window that was seen.
func (c *connections) Loosen(all []state.Tracked) error { return c.tracked.Loosen(c.ns, all) }
