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

// text returns the rule in nft's syntax.
func (r rule) text() state.NftRule {
	if r.plain != "" {
		return state.NftRule{Text: r.plain, Comment: r.comment}
	}
	peer := r.peer.String()
	if r.peer.prefix.IsValid() && r.peer.prefix.Bits() == 0 && r.port.set != nil && r.port.set.group != nil {
		peer = "" // the port set's address implies the family
	}
	var words []string
	for _, c := range r.conditions {
		words = append(words, c.String())
	}
	for _, w := range []string{peer, r.port.String(), r.verdict} {
		if w != "" {
			words = append(words, w)
		}
	}
	if r.to != nil {
		words = append(words, r.to.name)
	}
	return state.NftRule{Text: strings.Join(words, " "), Comment: r.comment}
}

// sets returns the sets that the rule uses.
func (r rule) sets() []*setSpec {
	var out []*setSpec
	for _, s := range []*setSpec{r.peer.set, r.port.set} {
		if s != nil {
			out = append(out, s)
		}
	}
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
