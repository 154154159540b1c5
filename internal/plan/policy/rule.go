// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// rule is one rule of a chain: what it is true of, and what is done then. The text for the kernel and the answer to
// "why" are both made of it.
type rule struct {
	peer    addrMatch
	port    portMatch
	verdict string // accept, drop, return; jump and goto go to the chain
	to      *chainSpec
	// plain is the text of a rule that is true of everything that comes by, and only notes it.
	plain string
	// from says whose the rule is, together whose it is where several are written together; neither: it is weft's own.
	from     model.PolicyKey
	number   int
	together []model.PolicyKey
	comment  string
}

// chainSpec says what is in a chain.
type chainSpec struct {
	name string
	// policies are those that the chain is about. When one of them changes, the chain is made again.
	policies []model.PolicyKey
	make     func() []rule
	// denies is set for a chain that ends what the policies deny.
	denies *Denial
}

// addrMatch is a question about the peer's address; the zero value is true of all.
type addrMatch struct {
	dir    direction
	six    bool
	set    *setSpec
	prefix netip.Prefix // where there is no set; /0 asks only for the family
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

// portMatch is a question about protocol and port, or about destination, protocol and port; the zero value is true of
// all.
type portMatch struct {
	one portRange
	set *setSpec
}

func (m portMatch) any() bool { return m.set == nil && m.one.protocol == "" }

func (m portMatch) String() string {
	switch {
	case m.any():
		return ""
	case m.set != nil && m.set.group != nil:
		return ip(m.set.six) + " daddr . meta l4proto . th dport @" + m.set.name
	case m.set != nil:
		return "meta l4proto . th dport @" + m.set.name
	case m.one.whole():
		return "meta l4proto " + nftProto(m.one.protocol)
	}
	return nftProto(m.one.protocol) + " dport " + m.one.String()
}

// text is the rule in nft's words.
func (r rule) text() state.NftRule {
	if r.plain != "" {
		return state.NftRule{Text: r.plain, Comment: r.comment}
	}
	peer := r.peer.String()
	if r.peer.prefix.IsValid() && r.peer.prefix.Bits() == 0 && r.port.set != nil && r.port.set.group != nil {
		peer = "" // the address that comes with the port says the family
	}
	var words []string
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

// sets are those that the rule asks.
func (r rule) sets() []*setSpec {
	var out []*setSpec
	for _, s := range []*setSpec{r.peer.set, r.port.set} {
		if s != nil {
			out = append(out, s)
		}
	}
	return out
}

// Verdicts on one side of a connection.
const (
	verdictAccept = "accept"
	verdictDrop   = "drop"
)
