// SPDX-License-Identifier: Apache-2.0

// Package cut computes which frames the wires of a lab lose: a cut is one direction of a link, between two nodes, between a
// node and all others, or of a whole wire. The nodes see no event, as with a switch that loses frames: carrier stays.
package cut

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Cut is a loss of all frames on a wire from one node to another. An empty node means every node.
type Cut struct {
	Wire string `json:"wire"`
	From string `json:"from"`
	To   string `json:"to"`
}

// String returns the cut as users read it: "wire0 node1 -> node2".
func (c Cut) String() string {
	return fmt.Sprintf("%s %s -> %s", c.Wire, cmp.Or(c.From, "*"), cmp.Or(c.To, "*"))
}

// Covers reports whether c loses every frame that d loses.
func (c Cut) Covers(d Cut) bool {
	return c.Wire == d.Wire && (c.From == "" || c.From == d.From) && (c.To == "" || c.To == d.To)
}

// Link is what a user names: a wire or all wires, and at most two nodes.
type Link struct {
	Wire   string // empty: every wire
	Nodes  []string
	OneWay bool // only what the first node sends
}

// Wires are the wires and nodes of a lab.
type Wires struct {
	Names []string
	Nodes []string
}

// Parse reads the arguments [WIRE] [NODE [NODE]]. Errors name the argument.
func (w Wires) Parse(args []string, oneWay bool) (Link, error) {
	l := Link{OneWay: oneWay}
	for i, a := range args {
		switch {
		case i == 0 && slices.Contains(w.Names, a):
			l.Wire = a
		case slices.Contains(l.Nodes, a):
			return l, model.Errorf(model.CodeInvalidConf, "a link has two different nodes", "node %q is named twice", a)
		case slices.Contains(w.Nodes, a) && len(l.Nodes) < 2:
			l.Nodes = append(l.Nodes, a)
		case slices.Contains(w.Nodes, a):
			return l, model.Errorf(model.CodeInvalidConf, "name at most two nodes", "node %q is one too many", a)
		default:
			return l, model.Errorf(model.CodeInvalidConf, "write [WIRE] [NODE [NODE]]; there are "+w.names(),
				"wire or node %q not found", a)
		}
	}
	switch {
	case len(args) == 0:
		return l, model.Errorf(model.CodeInvalidConf, "for example wire0, or wire0 node1 node2", "no wire and no node is named")
	case oneWay && len(l.Nodes) == 0:
		return l, model.Errorf(model.CodeInvalidConf, "name the node that sends, for example wire0 node1",
			"--one-way needs a node")
	}
	return l, nil
}

// names lists the wires and nodes, of many nodes only the first and the last.
func (w Wires) names() string {
	nodes := w.Nodes
	if len(nodes) > 10 {
		nodes = []string{nodes[0], "…", nodes[len(nodes)-1]}
	}
	return strings.Join(slices.Concat(w.Names, nodes), ", ")
}

// Cuts returns the cuts of a link.
func (w Wires) Cuts(l Link) []Cut {
	from, to := "", ""
	if len(l.Nodes) > 0 {
		from = l.Nodes[0]
	}
	if len(l.Nodes) > 1 {
		to = l.Nodes[1]
	}
	var out []Cut
	for _, wire := range w.Names {
		if l.Wire != "" && l.Wire != wire {
			continue
		}
		out = append(out, Cut{Wire: wire, From: from, To: to})
		if from != to && !l.OneWay {
			out = append(out, Cut{Wire: wire, From: to, To: from})
		}
	}
	return out
}

// Add returns all cuts with more, sorted, without those that another one covers.
func Add(all []Cut, more ...Cut) []Cut {
	all = slices.Concat(all, more)
	slices.SortFunc(all, func(a, b Cut) int {
		return cmp.Or(strings.Compare(a.Wire, b.Wire), strings.Compare(a.From, b.From), strings.Compare(a.To, b.To))
	})
	all = slices.Compact(all)
	return slices.DeleteFunc(slices.Clone(all), func(c Cut) bool {
		return slices.ContainsFunc(all, func(d Cut) bool { return d != c && d.Covers(c) })
	})
}

// Remove returns all cuts without those that one of healed covers. It refuses to heal a part of a larger cut, which it
// names.
func Remove(all []Cut, healed ...Cut) ([]Cut, error) {
	for _, h := range healed {
		for _, c := range all {
			if c != h && c.Covers(h) {
				return nil, model.Errorf(model.CodeInvalidConf, "heal that one", "%s is a part of a larger cut: %s", h, c)
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(c Cut) bool {
		return slices.ContainsFunc(healed, func(h Cut) bool { return h.Covers(c) })
	}), nil
}

// Fragment returns the nftables table, in the namespace of the wires, that loses the frames. port returns the name of a
// node's port on a wire.
func (w Wires) Fragment(all []Cut, port func(node, wire string) string) state.Fragment {
	chain := state.Chain{Name: "forward", Type: "filter", Hook: "forward", Policy: "accept"}
	lose := func(match string) {
		chain.Rules = append(chain.Rules, state.NftRule{Text: match + " counter drop"})
	}
	for _, c := range all {
		in, out := fmt.Sprintf("iifname %q", port(c.From, c.Wire)), fmt.Sprintf("oifname %q", port(c.To, c.Wire))
		switch {
		case c.From != "" && c.To != "":
			lose(in + " " + out)
		case c.From != "":
			lose(in)
		case c.To != "":
			lose(out)
		default:
			for _, n := range w.Nodes {
				lose(fmt.Sprintf("iifname %q", port(n, c.Wire)))
			}
		}
	}
	f := state.Fragment{Owner: "lab/cuts"}
	f.Host.Tables = []state.Table{{Family: "bridge", Name: "cuts", Chains: []state.Chain{chain}}}
	return f
}
