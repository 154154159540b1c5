// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// droppedFlows are the reply flows that a table drops.
type droppedFlows struct {
	now map[droppedFlow]bool
	was map[droppedFlow]bool // of those that changed since the last forget
}

// droppedFlow is a reply flow that is dropped. A held one is dropped until UndropReplies: policies at a port of a bridge
// or at a tap deny the connection, and no rule can tell when they allow it again. A packet that is routed to a port passes
// the IP hooks before the port's policies.
type droppedFlow struct {
	Flow
	held bool
}

func (f droppedFlow) compare(o droppedFlow) int { return f.Flow.compare(o.Flow) }

// droppedSet is a set of dropped flows.
type droppedSet struct{ six, held bool }

func droppedSets() []droppedSet {
	return []droppedSet{{}, {held: true}, {six: true}, {six: true, held: true}}
}

func (s droppedSet) has(f droppedFlow) bool { return f.Src.Is6() == s.six && f.held == s.held }

func (s droppedSet) name() string {
	if s.held {
		return "cut" + family(s.six) + "/held"
	}
	return "cut" + family(s.six)
}

func (s droppedSet) head() state.Set { return state.Set{Name: s.name(), Key: replyKey(s.six)} }

// heads returns the set, and the one that belongs to it.
func (s droppedSet) heads(elements []state.Element) []state.Set {
	head := s.head()
	head.Elements = elements
	if s.held {
		return []state.Set{head}
	}
	return []state.Set{head, resumedSet(s.six)}
}

func replyKey(six bool) string {
	addr := "ipv" + family(six) + "_addr"
	return addr + " . " + addr + " . inet_proto . inet_service . inet_service"
}

// resumedTime is how long a rule remembers that a dropped flow is of a connection that policies have allowed again:
// longer than the flow is dropped.
const resumedTime = "10m"

// resumedSet returns the set of dropped flows that pass, because a packet of their connection in the other direction has
// passed all policies since: the kernel tracks the connection as what it is.
func resumedSet(six bool) state.Set {
	return state.Set{Name: "resumed" + family(six), Key: replyKey(six), DynamicSize: maxFlows}
}

// ResumedSets returns the sets of dropped flows that rules let pass again, without elements.
func ResumedSets() []state.Set { return []state.Set{resumedSet(false), resumedSet(true)} }

// ResumedFlow returns the flow of an element of a set of ResumedSets: the connection's, not that of its replies. It is
// false if the element is invalid.
func ResumedFlow(e state.Element) (Flow, bool) {
	if len(e.Key) != 5 {
		return Flow{}, false
	}
	var f Flow
	var err [4]error
	f.Src, err[0] = netip.ParseAddr(e.Key[0])
	f.Dst, err[1] = netip.ParseAddr(e.Key[1])
	f.SrcPort, err[2] = portIn(e.Key[3])
	f.DstPort, err[3] = portIn(e.Key[4])
	for _, p := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
		if e.Key[2] == nftProtocol(p) {
			f.Protocol = p
		}
	}
	return f.reply(), f.Protocol != "" && err == [4]error{}
}

func (c *droppedFlows) forget() { c.was = map[droppedFlow]bool{} }

// set adds or removes a flow.
func (c *droppedFlows) set(r droppedFlow, is bool) {
	if c.now[r] == is {
		return
	}
	if _, done := c.was[r]; !done {
		c.was[r] = !is
	}
	if delete(c.now, r); is {
		c.now[r] = true
	}
}

func (c *droppedFlows) has(s droppedSet) bool {
	for f := range c.now {
		if s.has(f) {
			return true
		}
	}
	return false
}

// sets returns the sets of dropped flows, none for a family without any.
func (c *droppedFlows) sets() []state.Set {
	var out []state.Set
	for _, s := range droppedSets() {
		var all []state.Element
		for _, f := range slices.SortedFunc(maps.Keys(c.now), droppedFlow.compare) {
			if s.has(f) {
				all = append(all, f.element())
			}
		}
		if len(all) > 0 {
			out = append(out, s.heads(all)...)
		}
	}
	return out
}

// change adds what has changed since the last forget.
func (c *droppedFlows) change(to *state.TableChange) {
	for _, s := range droppedSets() {
		count := 0
		for f := range c.now {
			if s.has(f) {
				count++
			}
		}
		before := count
		var gone, came []state.Element
		for _, f := range slices.SortedFunc(maps.Keys(c.was), droppedFlow.compare) {
			switch was, is := c.was[f], c.now[f]; {
			case !s.has(f) || was == is:
			case was:
				gone = append(gone, f.element())
				before++
			default:
				came = append(came, f.element())
				before--
			}
		}
		switch {
		case before == 0 && count > 0:
			to.AddSets = append(to.AddSets, s.heads(came)...)
		case before > 0 && count == 0:
			for _, head := range s.heads(nil) {
				to.DeleteSets = append(to.DeleteSets, head.Name)
			}
		default:
			elements(to, s.head(), gone, came)
		}
	}
}
