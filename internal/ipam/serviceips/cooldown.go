// SPDX-License-Identifier: Apache-2.0

package serviceips

import (
	"cmp"
	"net/netip"
	"time"

	"github.com/weft-net/weft/internal/model"
)

// cooldown is how many seconds pass before a released address is assigned again, unless its pool says otherwise: clients
// cache names and neighbors for about as long.
const cooldown = 60

// Cooldown are the addresses that Services have given up. Clients may have them still, from the DNS or as a neighbor, so
// that another Service would get what is meant for the last one. It is in memory only: a controller that starts, or
// becomes the leader, knows none.
type Cooldown struct {
	held     map[netip.Addr]string
	released map[netip.Addr]time.Time
}

// Update compares the addresses that Services have with those of the last call. It returns those that are not to be
// assigned unless nothing else is free, with the time until which.
func (c *Cooldown) Update(pools []model.AddressPool, all []Service, now time.Time) map[netip.Addr]time.Time {
	held := Holders(pools, all)
	if c.released == nil {
		c.released = map[netip.Addr]time.Time{}
	}
	for addr := range c.held {
		if held[addr] == "" {
			c.released[addr] = now
		}
	}
	c.held = held
	a := newAssignment(pools)
	out := map[netip.Addr]time.Time{}
	for addr, since := range c.released {
		p := a.poolOf(addr)
		if p == nil || held[addr] != "" {
			delete(c.released, addr)
			continue
		}
		until := since.Add(time.Duration(cmp.Or(p.Cooldown, cooldown)) * time.Second)
		if !now.Before(until) {
			delete(c.released, addr)
			continue
		}
		out[addr] = until
	}
	return out
}
