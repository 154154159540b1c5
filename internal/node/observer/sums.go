// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/flow"
)

const (
	// sumPeriod is the time of which flows are summed up, and sumsKept how long sums are kept.
	sumPeriod, sumsKept = 15 * time.Second, 15 * time.Minute
	// maxSums is how many sums are kept, about a kilobyte each, and sumsSure how many each period keeps whatever others
	// have: those of at least five minutes are kept.
	maxSums  = 4096
	sumsSure = maxSums/int(5*time.Minute/sumPeriod) - maxOthers
	// maxOthers is how many sums of others a period has at most: one for each kind and verdict.
	maxOthers = 5
)

// sumKey is what the flows of a sum have in common. Ports of sources differ.
type sumKey struct {
	kind                flow.Kind
	verdict             flow.Verdict
	protocol, direction string
	from, to, via       sumEnd
	why                 string
}

type sumEnd struct {
	flow.Identity
	addr netip.Addr
	port uint16
}

// period are the flows of one period.
type period struct {
	start time.Time
	sums  []*flow.Record
	index map[sumKey]*flow.Record
	lost  flow.Lost
}

// sums has the flows that the ring has no room for any more, summed up by period, ends and decisions. Those beyond the
// limit are summed up as "others": each flow is in one sum. It is not safe for concurrent use.
type sums struct {
	periods []*period // the oldest first
	count   int
	dropped time.Time // the end of the last period that is not kept any more
	// recent are the sums of conversations in the last period.
	recent map[*conversation]*flow.Record
}

// add adds a flow, or what was lost.
func (s *sums) add(e *entry) {
	p := s.at(e.at)
	if e.lost != nil {
		p.lost = flow.Lost{
			Time: e.lost.Time, Node: e.lost.Node, New: p.lost.New + e.lost.New, End: p.lost.End + e.lost.End,
			Drops: p.lost.Drops + e.lost.Drops, Queue: p.lost.Queue + e.lost.Queue,
		}
		return
	}
	if sum := s.recent[e.conversation]; sum != nil {
		sum.Count++
		if e.counted {
			if sum.Forth == nil || sum.Back == nil {
				sum.Forth, sum.Back = &flow.Counters{}, &flow.Counters{}
			}
			grow(sum.Forth, e.forth)
			grow(sum.Back, e.back)
		}
		return
	}
	r := e.record()
	if p.index[keyOf(r)] == nil && !s.extends(p) {
		_, added := p.add(others(r))
		s.count += added
		return
	}
	sum, added := p.add(r)
	s.count += added
	if len(s.recent) >= maxConversations {
		clear(s.recent)
	}
	s.recent[e.conversation] = sum
}

func grow(c *flow.Counters, by flow.Counters) {
	c.Packets, c.Bytes = c.Packets+by.Packets, c.Bytes+by.Bytes
}

// others returns a flow as one whose ends are not kept.
func others(r flow.Record) flow.Record {
	end := flow.Endpoint{Identity: flow.Identity{Kind: flow.OtherEnd}}
	return flow.Record{
		Node: r.Node, Kind: r.Kind, Verdict: r.Verdict, From: end, To: end, Forth: r.Forth, Back: r.Back, Count: r.Count,
	}
}

// add adds a flow, or a sum, to the sum that it belongs to, and returns that and how many are new.
func (p *period) add(r flow.Record) (sum *flow.Record, added int) {
	key := keyOf(r)
	if sum := p.index[key]; sum != nil {
		sum.Count += r.Flows()
		sum.Forth, sum.Back = total(sum.Forth, r.Forth), total(sum.Back, r.Back)
		return sum, 0
	}
	r.Time, r.Until, r.From.Port, r.Masquerade = p.start, p.start.Add(sumPeriod), 0, nil
	r.State = ""
	r.Count, r.Forth, r.Back = r.Flows(), total(nil, r.Forth), total(nil, r.Back)
	p.index[key] = &r
	p.sums = append(p.sums, &r)
	return &r, 1
}

// compact keeps the largest sums of a period, as many as it surely has, and adds the rest to those of others.
func (p *period) compact() {
	slices.SortStableFunc(p.sums, func(a, b *flow.Record) int { return cmp.Compare(b.Count, a.Count) })
	rest := p.sums[sumsSure:]
	p.sums = slices.Clone(p.sums[:sumsSure])
	for _, r := range rest {
		delete(p.index, keyOf(*r))
	}
	for _, r := range rest {
		p.add(others(*r))
	}
}

// total returns the sum of two counters, as a new one.
func total(a, b *flow.Counters) *flow.Counters {
	if a == nil && b == nil {
		return nil
	}
	var out flow.Counters
	for _, c := range []*flow.Counters{a, b} {
		if c != nil {
			out.Packets, out.Bytes = out.Packets+c.Packets, out.Bytes+c.Bytes
		}
	}
	return &out
}

func keyOf(r flow.Record) sumKey {
	k := sumKey{
		kind: r.Kind, verdict: r.Verdict, protocol: r.Protocol, direction: r.Direction, why: r.Why(),
		from: sumEnd{r.From.Identity, r.From.Addr, 0}, to: sumEnd{r.To.Identity, r.To.Addr, r.To.Port},
	}
	if r.Via != nil {
		k.via = sumEnd{r.Via.Identity, r.Via.Addr, r.Via.Port}
	}
	return k
}

// at returns the period of a time: the last one, also if a clock was set back.
func (s *sums) at(t time.Time) *period {
	start := t.Truncate(sumPeriod)
	if n := len(s.periods); n > 0 && !s.periods[n-1].start.Before(start) {
		return s.periods[n-1]
	}
	p := &period{start: start, index: map[sumKey]*flow.Record{}}
	s.recent = map[*conversation]*flow.Record{}
	s.periods = append(s.periods, p)
	for s.periods[0].start.Before(start.Add(-sumsKept)) {
		s.dropOldest()
	}
	return p
}

func (s *sums) dropOldest() {
	first := s.periods[0]
	s.dropped = first.start.Add(sumPeriod)
	s.count -= len(first.sums)
	s.periods = append([]*period(nil), s.periods[1:]...)
}

// extends reports whether a period may have another sum. Other periods make space: first with sums beyond those that each
// surely has, then the oldest one.
func (s *sums) extends(p *period) bool {
	for _, old := range s.periods {
		if s.count < maxSums {
			return true
		}
		if before := len(old.sums); old != p && before > sumsSure+maxOthers {
			old.compact()
			s.count += len(old.sums) - before
		}
	}
	for s.count >= maxSums && len(p.sums) < sumsSure && s.periods[0] != p {
		s.dropOldest()
	}
	return s.count < maxSums
}

// since returns the sums of the periods that end after a time, the oldest first. from is as that of the ring.
func (s *sums) since(t time.Time) (out []flow.Line, from time.Time) {
	for _, p := range s.periods {
		if !p.start.Add(sumPeriod).After(t) {
			continue
		}
		for _, r := range p.sums {
			sum := *r // it may grow
			out = append(out, flow.Line{Flow: &sum})
		}
		if p.lost.Sum() > 0 {
			lost := p.lost
			out = append(out, flow.Line{Lost: &lost})
		}
	}
	if s.dropped.After(t) {
		from = s.dropped
	}
	return out, from
}
