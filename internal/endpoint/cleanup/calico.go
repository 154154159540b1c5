// SPDX-License-Identifier: Apache-2.0

package cleanup

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

// Name prefixes of Calico's objects, and the protocol numbers of its routes (Felix, BIRD).
const (
	calicoChains  = "cali-"
	calicoComment = "cali:"
	calicoSets    = "cali"
	felixRoutes   = 80
	birdRoutes    = 12
	bootRoutes    = 3
)

// calicoTunnels returns the tunnel links that Felix creates; IPIP uses the kernel's tunl0.
func calicoTunnels() []string {
	return []string{"vxlan.calico", "vxlan-v6.calico", "wireguard.cali", "wg-v6.cali"}
}

const calicoIPIP = "tunl0"

// Calico lists what Calico has left on a node, except for its pods' interfaces and the routes to them.
type Calico struct {
	// Routes are the routes to other nodes, and blackhole routes.
	Routes []state.Route
	// Tunnels are links.
	Tunnels []string
	Tables  []state.Table
	Sets    []string
	// Unreadable are tables of legacy iptables that cannot be read because the program is missing.
	Unreadable []string
	// rules are the iptables tables with Calico's chains.
	rules []ruleTable
}

// Lines describes each object in one line.
func (c Calico) Lines() []string {
	var out []string
	for _, r := range c.Routes {
		way := "dev " + r.Link
		if r.Type == unix.RTN_BLACKHOLE {
			way = "blackhole"
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

// FindCalico lists what Calico has left on a node.
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

// calicoRoute reports whether a route is Calico's route to another node. Routes to this node's pods stay.
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
			some, err := t.hasCalico(ctx)
			_, none := iptables.Find(n.host.Root, t.Program()+"-legacy-save")
			switch {
			case err != nil && !errors.Is(err, iptables.ErrAbsent):
				return err
			case some:
				c.rules = append(c.rules, t)
			case err != nil, t.maybeAbsent && none != nil: // the plain program names may be iptables-nft
				c.Unreadable = append(c.Unreadable, t.String())
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

func (t ruleTable) hasCalico(ctx context.Context) (some bool, err error) {
	err = t.conn.Delete(ctx, t.IPTables, func(have *iptables.Table) iptables.Choice {
		choice := chooseCalico(have)
		some = len(choice.Chains)+len(choice.Rules) > 0
		return iptables.Choice{}
	})
	return some, err
}

// calicoTable reports whether an nftables table is Felix' own.
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

// Remove removes everything: first the routes to other nodes, which weft has replaced, then the rules. It continues
// after an error.
func (c Calico) Remove(ctx context.Context, host *kernel.Conn) error {
	spaces := kernel.Spaces{Host: host}
	errs := []error{spaces.Remove(ctx, state.Fragment{Owner: "calico", Host: state.Space{Routes: c.Routes}})}
	for _, t := range c.rules {
		errs = append(errs, t.remove(ctx, chooseCalico))
	}
	errs = append(errs, spaces.Remove(ctx, state.Fragment{Owner: "calico", Host: state.Space{Tables: c.Tables}}))
	for _, s := range c.Sets {
		errs = append(errs, host.DeleteIPSet(s))
	}
	errs = append(errs, host.DeleteLinks(ctx, c.Tunnels...))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("Calico's leftovers: %w", err)
	}
	return nil
}
