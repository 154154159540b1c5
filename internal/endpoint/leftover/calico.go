// SPDX-License-Identifier: Apache-2.0

package leftover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/kernel/iptables"
	"github.com/weft-net/weft/internal/kernel/nft"
	"github.com/weft-net/weft/internal/state"
)

// What Calico's things are called, and the numbers that its routes have: Felix' and BIRD's.
const (
	calicoChains  = "cali-"
	calicoComment = "cali:"
	calicoSets    = "cali"
	felixRoutes   = 80
	birdRoutes    = 12
	bootRoutes    = 3
)

// calicoTunnels are the links to other nodes that Felix makes; IPIP's is the kernel's own.
func calicoTunnels() []string {
	return []string{"vxlan.calico", "vxlan-v6.calico", "wireguard.cali", "wg-v6.cali"}
}

const calicoIPIP = "tunl0"

// Calico is what Calico has left on a node beside the interfaces of its pods and the ways to them.
type Calico struct {
	// Routes lead to other nodes, or refuse what no pod has.
	Routes []state.Route
	// Tunnels are links.
	Tunnels []string
	Tables  []state.Table
	Sets    []string
	// Unseen are tables of the older iptables that nobody could look into.
	Unseen []string
	// rules are the tables of iptables that have chains of Calico's.
	rules []tables
}

// Lines say what there is, for people.
func (c Calico) Lines() []string {
	var out []string
	for _, r := range c.Routes {
		way := "over " + r.Link
		if r.Type == unix.RTN_BLACKHOLE {
			way = "to nowhere"
		}
		out = append(out, fmt.Sprintf("route %s %s", r.Dst, way))
	}
	for _, t := range c.rules {
		out = append(out, t.String())
	}
	for _, t := range c.Tables {
		out = append(out, "nft table "+t.Family+" "+t.Name)
	}
	for _, s := range c.Sets {
		out = append(out, "ipset "+s)
	}
	for _, l := range c.Tunnels {
		out = append(out, "link "+l)
	}
	return out
}

// FindCalico looks for it.
func FindCalico(ctx context.Context, host *kernel.Conn) (Calico, error) {
	var c Calico
	seen, err := host.ReadMarked(ctx, kernel.Marks{
		Alias: "-", Links: calicoTunnels(), Protocols: []uint8{felixRoutes, birdRoutes, bootRoutes},
	})
	if err != nil {
		return c, err
	}
	for _, l := range seen.Links {
		c.Tunnels = append(c.Tunnels, l.Name)
	}
	slices.Sort(c.Tunnels)
	for _, r := range seen.Routes {
		if calicoRoute(r) {
			c.Routes = append(c.Routes, r)
		}
	}
	n := &node{host: host}
	if err := c.findRules(ctx, n); err != nil {
		return c, err
	}
	c.Sets, err = host.IPSets(calicoSets)
	return c, err
}

// calicoRoute tells whether a route is one of Calico's to other nodes. Those to this node's pods stay.
func calicoRoute(r state.Route) bool {
	if slices.Contains(calicoTunnels(), r.Link) || r.Link == calicoIPIP && r.Gw.IsValid() {
		return true
	}
	return r.Protocol != bootRoutes && !strings.HasPrefix(r.Link, calicoSets)
}

func (c *Calico) findRules(ctx context.Context, n *node) error {
	for _, table := range []string{"raw", "mangle", "nat", "filter"} {
		all, err := n.iptables(ctx, table, Scope{}, func(name string) bool { return strings.HasPrefix(name, calicoChains) })
		if err != nil {
			return err
		}
		for _, t := range all {
			some, err := t.hasCalicos(ctx)
			_, none := iptables.Find(n.host.Root, t.Program()+"-legacy-save")
			switch {
			case err != nil && !errors.Is(err, iptables.ErrAbsent):
				return err
			case some:
				c.rules = append(c.rules, t)
			case err != nil, t.guess && none != nil: // the plain names may be the newer one's
				c.Unseen = append(c.Unseen, t.String())
			}
		}
	}
	places, err := n.places(ctx)
	for _, p := range places {
		t := state.Table{Family: p.Family, Name: p.Table}
		if calicoTable(p) && !slices.ContainsFunc(c.Tables, func(o state.Table) bool {
			return o.Family == t.Family && o.Name == t.Name
		}) {
			c.Tables = append(c.Tables, t)
		}
	}
	return err
}

func (t tables) hasCalicos(ctx context.Context) (some bool, err error) {
	err = t.conn.Take(ctx, t.IPTables, func(have *iptables.Table) iptables.Choice {
		choice := chooseCalico(have)
		some = len(choice.Chains)+len(choice.Rules) > 0
		return iptables.Choice{}
	})
	return some, err
}

// calicoTable tells whether a table is Felix' own.
func calicoTable(p nft.Place) bool {
	return p.Table == "calico" || strings.HasPrefix(p.Table, "calico-")
}

func chooseCalico(have *iptables.Table) iptables.Choice {
	choice := iptables.Choice{Rules: map[string][]int{}}
	for _, chain := range have.Chains {
		if strings.HasPrefix(chain.Name, calicoChains) {
			choice.Chains = append(choice.Chains, chain.Name)
			continue
		}
		for i, r := range chain.Rules {
			if slices.ContainsFunc(r.Comments(), func(s string) bool { return strings.HasPrefix(s, calicoComment) }) {
				choice.Rules[chain.Name] = append(choice.Rules[chain.Name], i)
			}
		}
	}
	return choice
}

// Take takes it away: first the ways to other nodes, for which others are there, then what judges packets. It goes on
// after an error.
func (c Calico) Take(ctx context.Context, host *kernel.Conn) error {
	spaces := kernel.Spaces{Host: host}
	errs := []error{spaces.Remove(ctx, state.Fragment{Owner: "calico", Host: state.Space{Routes: c.Routes}})}
	for _, t := range c.rules {
		errs = append(errs, t.take(ctx, chooseCalico))
	}
	errs = append(errs, spaces.Remove(ctx, state.Fragment{Owner: "calico", Host: state.Space{Tables: c.Tables}}))
	for _, s := range c.Sets {
		errs = append(errs, host.TakeIPSet(s))
	}
	errs = append(errs, host.TakeLinks(ctx, c.Tunnels...))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("what Calico has left: %w", err)
	}
	return nil
}
