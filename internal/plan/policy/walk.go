// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// decision is the rule that ended a walk; without a verdict the end of the chains was reached, where packets are
// accepted.
type decision struct {
	verdict string
	chain   *chain
	rule    rule
	set     string // the set with the peer or port
	element string
}

// walker evaluates packets against the planned tables.
type walker struct {
	groups   *groups
	compiler *compiler
}

// walk evaluates a packet in the chains as the kernel does.
func (k *walker) walk(t *table, name string, f Flow, dir direction) decision {
	c := t.chains[name]
	for _, r := range c.rules {
		if r.plain != "" || r.logs {
			continue
		}
		set, found, ok := k.matches(r, f, dir)
		if !ok {
			continue
		}
		switch r.verdict {
		case "return":
			return decision{}
		case "jump", "goto":
			d := k.walk(t, r.to.name, f, dir)
			if d.verdict == verdictDrop && r.from != (model.PolicyKey{}) {
				// The rule that denies is more specific than the chain that counts.
				d.rule, d.chain, d.set, d.element = r, c, set, found
			}
			if d.verdict != "" || r.verdict == "goto" {
				return d
			}
		case verdictAccept:
			return decision{verdict: verdictAccept, chain: c, rule: r, set: set, element: found}
		default: // a rule of denyChain
			return decision{verdict: verdictDrop, chain: c, rule: r}
		}
	}
	return decision{}
}

// matches reports whether the rule matches the packet, and by which element of which set.
func (k *walker) matches(r rule, f Flow, dir direction) (set, found string, ok bool) {
	for _, c := range r.conditions {
		in, element, ok := c.matches(k, f)
		if !ok {
			return "", "", false
		}
		if set == "" && found == "" {
			set, found = in, element
		}
	}
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
			if found, ok = k.lookup(m.set, element{addr: peer}); !ok {
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
		port, is := k.lookup(m.set, element{f.Dst, f.Protocol, f.DstPort})
		if !is {
			return "", "", false
		}
		if set == "" && found == "" {
			set, found = m.set.name, port
		}
	}
	return set, found, true
}

// lookup returns the element of a set that matches.
func (k *walker) lookup(spec *setSpec, e element) (string, bool) {
	switch {
	case spec.group != nil:
		if e.addr.Is6() != spec.six {
			return "", false
		}
		return elementWords(spec.element(e)), k.groups.matches(spec.group, e)
	case spec.pairs != nil:
		if !slices.Contains(spec.pairs, e) {
			return "", false
		}
		return elementWords(spec.element(e)), true
	case spec.ports != nil:
		i := slices.IndexFunc(spec.ports, func(p portRange) bool { return p.contains(e.protocol, e.port) })
		if i < 0 {
			return "", false
		}
		return nftProtocol(spec.ports[i].protocol) + " . " + spec.ports[i].String(), true
	}
	i := slices.IndexFunc(spec.ranges, func(r addrRange) bool { return r.contains(e.addr) })
	if i < 0 {
		return "", false
	}
	return spec.ranges[i].String(), true
}

// ruleFor returns which rule of merged policies matches a connection.
func (k *walker) ruleFor(keys []model.PolicyKey, f Flow, dir direction) (rule, bool) {
	for _, key := range keys {
		p := k.compiler.cluster.policies[key]
		if p == nil {
			continue
		}
		for _, r := range k.compiler.compiled(p, dir) {
			if _, _, ok := k.matches(r, f, dir); ok {
				return r, true
			}
		}
	}
	return rule{}, false
}

func elementWords(e state.Element) string { return strings.Join(e.Key, " . ") }
