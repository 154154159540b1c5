// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// rule is one rule of a chain: its matches and its verdict. The nft text and the answer to "why" are both derived from
// it.
type rule struct {
	peer addrMatch
	port portMatch
	// conditions are those of one of Calico's rules, which has no peer and port.
	conditions []condition
	verdict    string // accept, drop, return; jump and goto go to the chain
	to         *chainSpec
	// logs: the verdict logs, and the next rule is evaluated.
	logs bool
	// plain is the text of a rule that matches everything, and only counts or logs it.
	plain string
	// from is the rule's policy, merged its policies if several are merged; neither: the rule is weft's own.
	from    model.PolicyKey
	number  int
	merged  []model.PolicyKey
	comment string
}

// chainSpec is the definition of a chain.
type chainSpec struct {
	name string
	// policies are the policies of the chain. When one of them changes, the chain is recompiled.
	policies []model.PolicyKey
	make     func() []rule
	// accept is what the chain's rules that accept do instead; empty: they accept.
	accept string
	// denies is set for a chain that drops denied packets.
	denies *Denial
}

// addrMatch matches the peer's address; the zero value matches all.
type addrMatch struct {
	dir    direction
	six    bool
	set    *setSpec
	prefix netip.Prefix // without a set; /0 matches the family only
}

func (m addrMatch) any() bool { return m.set == nil && !m.prefix.IsValid() }

func (m addrMatch) String() string {
	switch {
	case m.any():
		return ""
	case m.set != nil:
		return ip(m.six) + " " + m.dir.peer() + " @" + m.set.name
	case m.prefix.Bits() == 0:
		return "meta protocol " + ip(m.six) // "meta nfproto" is that of the table at ports and taps
	case m.prefix.IsSingleIP():
		return ip(m.six) + " " + m.dir.peer() + " " + m.prefix.Addr().String()
	}
	return ip(m.six) + " " + m.dir.peer() + " " + m.prefix.String()
}

// portMatch matches protocol and port, or destination, protocol and port; the zero value matches all.
type portMatch struct {
	one portRange
	set *setSpec
}

func (m portMatch) any() bool { return m.set == nil && m.one.protocol == "" }

func (m portMatch) String() string {
	switch {
	case m.any():
		return ""
	case m.set != nil && m.set.hasAddress():
		return ip(m.set.six) + " daddr . meta l4proto . th dport @" + m.set.name
	case m.set != nil:
		return "meta l4proto . th dport @" + m.set.name
	case m.one.all():
		return "meta l4proto " + nftProtocol(m.one.protocol)
	}
	return nftProtocol(m.one.protocol) + " dport " + m.one.String()
}

// text returns the rule in nft's syntax, as nft prints it.
func (r rule) text() state.NftRule { return r.textIn("") }

// textIn returns the rule for a table of that family.
func (r rule) textIn(table string) state.NftRule {
	if r.plain != "" {
		return state.NftRule{Text: r.plain, Comment: r.comment}
	}
	words := r.matches(table)
	if r.verdict != "" {
		words = append(words, r.verdict)
	}
	if r.to != nil {
		words = append(words, r.to.name)
	}
	return state.NftRule{Text: strings.Join(words, " "), Comment: r.comment}
}

// matches returns the texts of the rule's matches: comparisons before lookups in sets, which cost several times as much.
// In a table, a packet of the other family than a lookup's would then only be recognized after the comparisons; so the
// family is compared before them, which nft does not print, because the lookup implies it.
func (r rule) matches(table string) []string {
	var compared, lookups []string
	guard, guarded := "", r.peer.prefix.IsValid()
	add := func(text string, sets []*setSpec) {
		switch {
		case text == "":
		case len(sets) == 0:
			compared = append(compared, text)
		default:
			lookups = append(lookups, text)
		}
		for _, s := range sets {
			if s.hasFamily() {
				guard = familyGuard(table, s.six)
			}
		}
	}
	for _, c := range r.conditions {
		add(c.String(), c.sets())
		guarded = guarded || len(c.sets()) == 0 && impliesFamily([]condition{c})
	}
	peer := r.peer.String()
	if r.peer.prefix.IsValid() && r.peer.prefix.Bits() == 0 && r.port.set != nil && r.port.set.group != nil {
		peer = "" // the port set's address implies the family
	}
	add(peer, setsOf(r.peer.set))
	add(r.port.String(), setsOf(r.port.set))
	if len(compared) > 0 && guard != "" && !guarded {
		compared = append([]string{guard}, compared...)
	}
	return append(compared, lookups...)
}

// familyGuard returns the comparison of a packet's family in a table of that family.
func familyGuard(table string, six bool) string {
	switch table {
	case "":
		return ""
	case TableFamily:
		return "meta nfproto ipv" + family(six)
	}
	return "meta protocol " + ip(six)
}

// family returns the only family of the packets that the rule may match; only is false if there is none.
func (r rule) family() (six, only bool) {
	for _, c := range r.conditions {
		switch c := c.(type) {
		case addrCondition:
			return c.six, true
		case icmpCondition:
			return c.six, true
		}
	}
	for _, s := range r.sets() {
		if s.hasFamily() {
			return s.six, true
		}
	}
	return r.peer.six, !r.peer.any()
}

// setsOf returns the set of a match, if it has one.
func setsOf(s *setSpec) []*setSpec {
	if s == nil {
		return nil
	}
	return []*setSpec{s}
}

// sets returns the sets that the rule uses.
func (r rule) sets() []*setSpec {
	out := append(setsOf(r.peer.set), setsOf(r.port.set)...)
	for _, c := range r.conditions {
		out = append(out, c.sets()...)
	}
	return out
}

// DenyMark is the mark of a packet that policy denies, when it is dropped: the kernel's reports of dropped packets have it,
// which distinguishes them from those of other packet filters. The bytes are the text "weft".
const DenyMark = 0x77656674

// deny marks and drops a packet.
func deny() string { return fmt.Sprintf("meta mark set %#x drop", DenyMark) }

// Verdicts on one side of a connection.
const (
	verdictAccept = "accept"
	verdictDrop   = "drop"
)
