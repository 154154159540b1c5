// SPDX-License-Identifier: Apache-2.0

// Package poolcatalog knows the pools of the cluster's network, and selects those that may serve an attachment: by its
// configuration, its pod's annotations, its claim, and the pools' selectors. It allocates no addresses.
package poolcatalog

import (
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/addrspan"
	"github.com/weft-net/weft/internal/ipam/poolconf"
	"github.com/weft-net/weft/internal/model"
)

// Catalog is the cache of all pools of the cluster's network, used on this node or not. It is not safe for concurrent
// use.
type Catalog struct {
	labels func() (map[string]string, bool)
	log    *slog.Logger

	// known: all pools have been listed.
	known bool
	pools map[string]model.AddressPool
	// seen are the pools that the current watch has sent so far.
	seen map[string]bool
	// choices are the allocatable pools, by name; nil: computed from the pools at the next use.
	choices []choice
	// conditions say why others are not allocatable; nil: computed at the next use.
	conditions map[string]model.Condition
}

// New returns a Catalog without pools. labels returns this node's labels; false: they are not known yet. Nil: it has
// none.
func New(labels func() (map[string]string, bool), log *slog.Logger) *Catalog {
	return &Catalog{labels: labels, log: log, pools: map[string]model.AddressPool{}}
}

// Known reports whether all pools have been listed.
func (c *Catalog) Known() bool { return c.known }

// Get returns the pool of that name; false: the cluster's network has none.
func (c *Catalog) Get(name string) (model.AddressPool, bool) {
	p, has := c.pools[name]
	return p, has
}

// Restore adds a pool that an earlier agent knew. The pools count as listed then.
func (c *Catalog) Restore(spec model.AddressPool) {
	if c.Put(spec) {
		c.known = true
	}
}

// HandleEvent applies an event of a pool, and reports whether the choice of pools changed. An invalid object changes
// nothing: the last valid version stays.
func (c *Catalog) HandleEvent(ev store.Event) (changed bool) {
	name := ev.Object.Key.Name
	if ev.Type == store.Deleted {
		c.drop(name)
		return true
	}
	if c.seen != nil {
		c.seen[name] = true
	}
	spec, err := ev.Object.AddressPool()
	return err == nil && c.Put(spec)
}

// choice is an allocatable pool with its selectors parsed.
type choice struct {
	model.AddressPool
	nodes, namespaces model.Expression
	// wants are its addresses of IPv4 and of IPv6; a want without spans has none.
	wants [2]poolconf.Want
}

// Put adds or updates a pool, and reports whether that changes the choice of pools.
func (c *Catalog) Put(spec model.AddressPool) (changed bool) {
	was, had := c.pools[spec.Name]
	if !spec.IsClusterPool() {
		c.drop(spec.Name)
		return had
	}
	c.pools[spec.Name] = spec
	if had && sameChoice(was, spec) {
		return false
	}
	c.choices, c.conditions = nil, nil
	return true
}

// sameChoice reports whether two states of a pool are the same for the choice of pools.
func sameChoice(a, b model.AddressPool) bool {
	return a.AssignmentMode == b.AssignmentMode && a.NodeSelector == b.NodeSelector &&
		a.NamespaceSelector == b.NamespaceSelector &&
		slices.Equal(a.AllowedUses, b.AllowedUses) && a.Disabled == b.Disabled && a.Deleted == b.Deleted &&
		a.Created == b.Created &&
		a.Encapsulation == b.Encapsulation && slices.Equal(a.Regions, b.Regions)
}

func (c *Catalog) drop(name string) {
	if _, had := c.pools[name]; had {
		delete(c.pools, name)
		c.choices, c.conditions = nil, nil
	}
}

// refusal returns why a pool is not allocatable; empty: it is.
func (c *Catalog) refusal(name string) string {
	if c.conditions == nil {
		c.conditions = model.PoolConditions(c.All())
	}
	if why := c.conditions[name]; !why.True {
		return why.Message
	}
	return ""
}

// BeginResync starts a full comparison with a new watch.
func (c *Catalog) BeginResync() { c.seen = map[string]bool{} }

// EndResync drops the pools that the watch did not send. From now on all pools are known.
func (c *Catalog) EndResync() {
	for name := range c.pools {
		if c.seen != nil && !c.seen[name] {
			c.drop(name)
		}
	}
	c.seen, c.known = nil, true
}

// All returns the pools, sorted by name.
func (c *Catalog) All() []model.AddressPool {
	out := slices.Collect(maps.Values(c.pools))
	slices.SortFunc(out, func(a, b model.AddressPool) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// allocatable returns the pools that addresses can be allocated from.
func (c *Catalog) allocatable() []choice {
	if c.choices != nil {
		return c.choices
	}
	c.choices = []choice{}
	for _, p := range model.Allocatable(c.All()) {
		one := choice{AddressPool: p}
		one.nodes, _ = model.ParseExpression(p.NodeSelector) // one that cannot be read is not allocatable
		one.namespaces, _ = model.ParseExpression(p.NamespaceSelector)
		for i, family := range []model.IPFamily{model.IPv4, model.IPv6} {
			w := poolconf.Want{Pool: p.Name, Field: string(family) + " address"}
			for _, r := range p.Regions {
				if r.CIDR.Addr().Is4() != (family == model.IPv4) {
					continue
				}
				if !w.Network.IsValid() {
					w.Network = r.CIDR
				}
				w.Spans = append(w.Spans, addrspan.Whole(r.CIDR))
			}
			w.CacheID()
			one.wants[i] = w
		}
		c.choices = append(c.choices, one)
	}
	return c.choices
}

// want returns the want for an address of a family; false if the pool has none of it.
func (c choice) want(f model.IPFamily) (poolconf.Want, bool) {
	w := c.wants[0]
	if f == model.IPv6 {
		w = c.wants[1]
	}
	return w, len(w.Spans) > 0
}

// matchesPool reports whether a word names the pool: its name, or one of its regions.
func matchesPool(p model.AddressPool, word string) bool {
	if p.Name == word {
		return true
	}
	cidr, err := netip.ParsePrefix(word)
	return err == nil && slices.ContainsFunc(p.Regions, func(r model.AddressRegion) bool {
		return r.CIDR == cidr.Masked()
	})
}

// AddListed adds the pools of a list. What a watch has sent meanwhile is newer, and stays.
func (c *Catalog) AddListed(all []store.Object) {
	if c.known {
		return
	}
	for _, o := range all {
		if spec, err := o.AddressPool(); err == nil && !c.seen[o.Key.Name] {
			c.Put(spec)
		}
	}
	c.known = true
}
