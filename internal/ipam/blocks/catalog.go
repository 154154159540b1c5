// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// catalog is what is known of the pools of the cluster's network, used here or not.
type catalog struct {
	// known: all of them have been told.
	known bool
	pools map[string]model.AddressPool
	// told are those that a watch has told so far.
	told map[string]bool
	// choices are those that give addresses, by name; nil: to be made of the pools.
	choices []choice
	// conditions say why others do not; nil: to be made of the pools.
	conditions map[string]model.Condition
}

func newCatalog() catalog { return catalog{pools: map[string]model.AddressPool{}} }

// choice is a pool of the cluster's network, read.
type choice struct {
	model.AddressPool
	nodes, namespaces model.Expression
	// wants are its addresses of IPv4 and of IPv6; without spans it has none.
	wants [2]want
}

// put takes in what a pool says.
func (c *catalog) put(spec model.AddressPool) (news bool) {
	was, had := c.pools[spec.Name]
	if !spec.OfCluster() {
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

// sameChoice tells whether two states of a pool are the same to who chooses.
func sameChoice(a, b model.AddressPool) bool {
	return a.AssignmentMode == b.AssignmentMode && a.NodeSelector == b.NodeSelector &&
		a.NamespaceSelector == b.NamespaceSelector &&
		slices.Equal(a.AllowedUses, b.AllowedUses) && a.Disabled == b.Disabled && a.Deleted == b.Deleted &&
		a.Created == b.Created &&
		a.Encapsulation == b.Encapsulation && slices.Equal(a.Regions, b.Regions)
}

func (c *catalog) drop(name string) {
	if _, had := c.pools[name]; had {
		delete(c.pools, name)
		c.choices, c.conditions = nil, nil
	}
}

// refusal says why a pool gives nothing to anybody; empty: it does.
func (c *catalog) refusal(name string) string {
	if c.conditions == nil {
		c.conditions = model.PoolConditions(c.all())
	}
	if why := c.conditions[name]; !why.True {
		return why.Message
	}
	return ""
}

// begin notes that a watch tells everything anew, end that it has.
func (c *catalog) begin() { c.told = map[string]bool{} }

func (c *catalog) end() {
	for name := range c.pools {
		if c.told != nil && !c.told[name] {
			c.drop(name)
		}
	}
	c.told, c.known = nil, true
}

// all are the pools by name.
func (c *catalog) all() []model.AddressPool {
	out := slices.Collect(maps.Values(c.pools))
	slices.SortFunc(out, func(a, b model.AddressPool) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// offer are the pools that give addresses.
func (c *catalog) offer() []choice {
	if c.choices != nil {
		return c.choices
	}
	c.choices = []choice{}
	for _, p := range model.Allocatable(c.all()) {
		one := choice{AddressPool: p}
		one.nodes, _ = model.ParseExpression(p.NodeSelector) // one that cannot be read is not allocatable
		one.namespaces, _ = model.ParseExpression(p.NamespaceSelector)
		for i, family := range []model.IPFamily{model.IPv4, model.IPv6} {
			w := want{pool: p.Name, field: string(family) + " address"}
			for _, r := range p.Regions {
				if r.CIDR.Addr().Is4() != (family == model.IPv4) {
					continue
				}
				if !w.network.IsValid() {
					w.network = r.CIDR
				}
				w.spans = append(w.spans, whole(r.CIDR))
			}
			w.name = w.id()
			one.wants[i] = w
		}
		c.choices = append(c.choices, one)
	}
	return c.choices
}

// want is what to take of the pool for a family; false when it has nothing of it.
func (c choice) want(f model.IPFamily) (want, bool) {
	w := c.wants[0]
	if f == model.IPv6 {
		w = c.wants[1]
	}
	return w, len(w.spans) > 0
}

// called tells whether a word names the pool: its name, or one of its regions.
func called(p model.AddressPool, word string) bool {
	if p.Name == word {
		return true
	}
	cidr, err := netip.ParsePrefix(word)
	return err == nil && slices.ContainsFunc(p.Regions, func(r model.AddressRegion) bool {
		return r.CIDR == cidr.Masked()
	})
}

// listed takes in all pools as they were a moment ago. What a watch has told meanwhile is newer, and stays.
func (c *catalog) listed(all []store.Object) {
	if c.known {
		return
	}
	for _, o := range all {
		if spec, err := o.AddressPool(); err == nil && !c.told[o.Key.Name] {
			c.put(spec)
		}
	}
	c.known = true
}
