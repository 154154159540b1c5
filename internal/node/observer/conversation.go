// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"net/netip"
	"time"

	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/kernel/conntrack"
)

// conversation is what connections of the same ends to the same port have in common: names and decisions are found once, and
// not for each of thousands of connections a second. It has no source port, and is not changed.
type conversation struct{ flow.Record }

// conversationKey is compared by its bytes: it has no pointers.
type conversationKey struct {
	from, to, via   [16]byte
	toPort, viaPort uint16
	proto           uint8
	kind            byte // the first letter
	v6              bool
}

// conversations are those that are valid now.
type conversations map[conversationKey]*conversation

// maxConversations is how many are kept, about 600 bytes each.
const maxConversations = 8192

// entry is a flow, or what was lost.
type entry struct {
	at           time.Time
	conversation *conversation
	port         uint16 // the source's
	counted      bool
	state        string
	masquerade   netip.AddrPort // not valid: none
	forth, back  flow.Counters
	lost         *flow.Lost
}

// entryOf returns the entry of a flow that is not one of many.
func entryOf(r flow.Record) entry {
	e := entry{at: r.Time, port: r.From.Port, state: r.State, conversation: &conversation{r}}
	if r.Masquerade != nil {
		e.masquerade = *r.Masquerade
	}
	if r.Forth != nil && r.Back != nil {
		e.counted, e.forth, e.back = true, *r.Forth, *r.Back
	}
	return e
}

// record returns the flow.
func (e *entry) record() flow.Record {
	r := e.conversation.Record
	r.Time, r.From.Port, r.State = e.at, e.port, e.state
	if e.masquerade.IsValid() {
		masquerade := e.masquerade
		r.Masquerade = &masquerade
	}
	if e.counted {
		forth, back := e.forth, e.back
		r.Forth, r.Back = &forth, &back
	}
	return r
}

// line returns the line of a stream.
func (e *entry) line() flow.Line {
	if e.lost != nil {
		return flow.Line{Lost: e.lost}
	}
	r := e.record()
	return flow.Line{Flow: &r}
}

// entry returns an event of a connection as an entry.
func (n *names) entry(e *conntrack.Event, at time.Time) entry {
	out := entry{at: at, port: e.Src.Port(), state: e.State, conversation: n.conversation(e, at), counted: e.Counted}
	if e.ReplyDst != e.Src {
		out.masquerade = e.ReplyDst
	}
	if e.Counted {
		out.forth, out.back = flow.Counters(e.Orig), flow.Counters(e.Reply)
	}
	return out
}

// conversation returns the conversation of an event.
func (n *names) conversation(e *conntrack.Event, at time.Time) *conversation {
	key := conversationKey{
		from: e.Src.Addr().As16(), to: e.ReplySrc.Addr().As16(), via: e.Dst.Addr().As16(), toPort: e.ReplySrc.Port(),
		viaPort: e.Dst.Port(), proto: e.Proto, kind: e.Kind[0], v6: e.Src.Addr().Is6(),
	}
	if c := n.conversations[key]; c != nil {
		return c
	}
	when := moment{at: at, earlier: e.Kind != conntrack.New}
	r := flow.Record{Node: n.cfg.Node, Kind: flow.Kind(e.Kind), Protocol: flow.Protocol(e.Proto), Verdict: flow.Allowed}
	passing := n.ends(&r, e.Src, e.ReplySrc, "", when)
	if e.Dst != e.ReplySrc {
		via, _, viaPassing := n.endpoint(e.Dst, "", when)
		r.Via, passing = &via, passing || viaPassing
	}
	if e.Kind == conntrack.New || e.Kind == conntrack.Tracked { // what decided was reported when it began
		passing = n.decide(&r) || passing
	}
	r.From.Port = 0
	c := &conversation{r}
	if passing {
		return c
	}
	if len(n.conversations) >= maxConversations {
		clear(n.conversations)
	}
	n.conversations[key] = c
	return c
}
