// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"

	"github.com/weft-net/weft/internal/model"
)

// Verdicts on one side of a connection.
const (
	verdictAccept = "accept"
	verdictDrop   = "drop"
)

// decision is the rule that ended a walk; without a verdict it is the end of the chains, where everything passes.
type decision struct {
	verdict string
	chain   *chain
	rule    rule
	set     string // that the peer or the port was found in
	element string
}

// walk follows a packet through the chains as the kernel does.
func (x *Index) walk(t *table, name string, f Flow, dir direction) decision {
	c := t.chains[name]
	for _, r := range c.rules {
		if r.plain != "" {
			continue
		}
		set, found, ok := x.matches(r, f, dir)
		if !ok {
			continue
		}
		switch r.verdict {
		case "return":
			return decision{}
		case "jump", "goto":
			d := x.walk(t, r.to.name, f, dir)
			if d.verdict == verdictDrop && r.from != (model.PolicyKey{}) {
				d.rule, d.chain, d.set, d.element = r, c, set, found // the rule that denies says more than the chain that counts
			}
			if d.verdict != "" || r.verdict == "goto" {
				return d
			}
		case verdictAccept:
			return decision{verdict: verdictAccept, chain: c, rule: r, set: set, element: found}
		default: // counter drop
			return decision{verdict: verdictDrop, chain: c, rule: r}
		}
	}
	return decision{}
}

// matches tells whether the rule is true of the packet, and which element of which set made it so.
func (x *Index) matches(r rule, f Flow, dir direction) (set, found string, ok bool) {
	peer := f.Src
	if dir == egress {
		peer = f.Dst
	}
	if m := r.peer; !m.any() {
		switch {
		case peer.Is6() != m.six:
			return "", "", false
		case m.set == nil:
			if !m.prefix.Contains(peer) {
				return "", "", false
			}
			found = m.prefix.String()
		default:
			if found, ok = x.lookup(m.set, element{addr: peer}); !ok {
				return "", "", false
			}
			set = m.set.name
		}
	}
	switch m := r.port; {
	case m.any():
	case m.set == nil:
		if !m.one.contains(f.Protocol, f.DstPort) {
			return "", "", false
		}
	default:
		port, is := x.lookup(m.set, element{f.Dst, f.Protocol, f.DstPort})
		if !is {
			return "", "", false
		}
		if set == "" && found == "" {
			set, found = m.set.name, port
		}
	}
	return set, found, true
}

// lookup asks a set for an element and says which one it has.
func (x *Index) lookup(spec *setSpec, e element) (string, bool) {
	switch {
	case spec.group != nil:
		if e.addr.Is6() != spec.six {
			return "", false
		}
		if g := x.groups[spec.group.id]; g != nil {
			return elementWords(spec.words(e)), x.has(g, e)
		}
		return elementWords(spec.words(e)), x.holds(spec.group, e, spec.group.selects)
	case spec.ports != nil:
		i := slices.IndexFunc(spec.ports, func(p portRange) bool { return p.contains(e.protocol, e.port) })
		if i < 0 {
			return "", false
		}
		return nftProto(spec.ports[i].protocol) + " . " + spec.ports[i].String(), true
	}
	i := slices.IndexFunc(spec.ranges, func(r addrRange) bool { return r.contains(e.addr) })
	if i < 0 {
		return "", false
	}
	return spec.ranges[i].String(), true
}

// Barred tells whether policy is against what has begun at a tap: out of the guest, or to it. Whose the addresses are does not matter.
func (x *Index) Barred(p Place, f Flow, out bool) bool {
	x.settle()
	t := x.tables[p]
	dir := ingress
	if out {
		dir = egress
	}
	if t == nil || p.Tap == "" || dir == ingress && slices.Contains(x.self, f.Src) {
		return false
	}
	e := chosen(t.links[p.Tap])
	return e != nil && e.chains[dir] != nil && x.walk(t, e.chains[dir].name, f, dir).verdict == verdictDrop
}

// Allowed tells whether policy lets a connection be, as far as this node judges it in a place. Dst is where it led after the
// translation of addresses, Src whence it came before. What the node itself began is always allowed.
func (x *Index) Allowed(p Place, f Flow) bool {
	x.settle()
	t := x.tables[p]
	if t == nil || slices.Contains(x.self, f.Src) && p.node() {
		return true
	}
	for _, dir := range directions() {
		own := f.Dst
		if dir == egress {
			own = f.Src
		} else if slices.Contains(x.self, f.Src) {
			continue
		}
		for _, e := range x.byAddr[own] {
			if e.table == t && e.chains[dir] != nil && x.walk(t, e.chains[dir].name, f, dir).verdict == verdictDrop {
				return false
			}
		}
	}
	return true
}
