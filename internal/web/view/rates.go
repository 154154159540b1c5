// SPDX-License-Identifier: Apache-2.0

package view

import (
	"time"

	"github.com/weft-net/weft/internal/flow"
)

// Rates are the flows per second of the last Span seconds, by verdict.
type Rates struct {
	// Step is the length of a point in seconds, and Since the time of the first one, in milliseconds since 1970. Points of
	// which flows are missing, because they were before the observation, are left out; the one that is not over, too.
	Step  int   `json:"step"`
	Span  int   `json:"span"`
	Since int64 `json:"since"`
	// Times are those of the points, in milliseconds since 1970, if they are not Step apart.
	Times []int64      `json:"times,omitempty"`
	Lines []RateSeries `json:"lines"`
	// Flows is the sum of all lines, or of packets.
	Flows uint64 `json:"flows"`
}

// RateSeries are the rates of a verdict.
type RateSeries struct {
	Verdict string    `json:"verdict"`
	Rates   []float64 `json:"rates"`
	// Now is the last rate, Peak the highest one, and Flows their sum in flows.
	Now   float64 `json:"now"`
	Peak  float64 `json:"peak"`
	Flows uint64  `json:"flows"`
}

// The points of a series.
const (
	ratePoints = 150
	rateStep   = 2 * time.Second
	// rateDelay is how long flows may take to arrive.
	rateDelay = time.Second
)

// maxMeters is how many filters' flows are counted at the same time.
const maxMeters = 8

// meter counts the flows that a filter selects, from a time on.
type meter struct {
	name   FlowFilter
	filter flow.Filter
	since  time.Time
	points [ratePoints + 1]point // by their number, modulo; the last one is not over
}

// point has the flows of one step of time, by verdict.
type point struct {
	step  int64
	flows map[flow.Verdict]uint64
}

// stepOf returns the number of a time's step.
func stepOf(t time.Time) int64 { return t.UnixNano() / int64(rateStep) }

// add counts a flow.
func (m *meter) add(r flow.Record) {
	if !m.filter.Match(r, nil) {
		return
	}
	step := stepOf(r.Time) // not later than now: it would take the place of a point that is still shown
	p := &m.points[step%int64(len(m.points))]
	if p.step > step {
		return // too old
	}
	if p.step < step {
		*p = point{step, map[flow.Verdict]uint64{}}
	}
	p.flows[r.Verdict] += r.Flows()
}

// rates returns what was counted until a time.
func (m *meter) rates(now time.Time) Rates {
	end := stepOf(now.Add(-rateDelay))
	first := max(end-ratePoints, stepOf(m.since)+1)
	out := Rates{
		Step: int(rateStep.Seconds()), Span: int(ratePoints * rateStep.Seconds()), Lines: []RateSeries{},
		Since: time.Unix(0, first*int64(rateStep)).UnixMilli(),
	}
	for _, verdict := range []flow.Verdict{flow.Allowed, flow.DeniedVerdict, flow.DroppedVerdict} {
		s := RateSeries{Verdict: string(verdict), Rates: []float64{}}
		for step := first; step < end; step++ {
			n := uint64(0)
			if p := m.points[step%int64(len(m.points))]; p.step == step {
				n = p.flows[verdict]
			}
			s.Now = float64(n) / rateStep.Seconds()
			s.Peak = max(s.Peak, s.Now)
			s.Flows += n
			s.Rates = append(s.Rates, s.Now)
		}
		out.Flows += s.Flows
		out.Lines = append(out.Lines, s)
	}
	return out
}

// meter returns the meter of a filter, the last one of the list. A new one counts the flows of the log first.
func (l *FlowLog) meter(name FlowFilter, filter flow.Filter) *meter {
	for i, m := range l.meters {
		if m.name == name {
			l.meters = append(append(l.meters[:i], l.meters[i+1:]...), m)
			return m
		}
	}
	m := &meter{name: name, filter: filter, since: l.since}
	kept := l.last()
	if l.total > uint64(len(kept)) {
		m.since = kept[0].Time
	}
	for _, r := range kept {
		if l.counts(r) {
			m.add(r)
		}
	}
	l.meters = append(l.meters[max(0, len(l.meters)+1-maxMeters):], m)
	return m
}

// counts reports whether a record is a flow of its own: neither the end of one, nor what another node reports, too.
func (l *FlowLog) counts(r flow.Record) bool {
	twice := r.Direction == flow.Ingress && r.Verdict == flow.Allowed && r.From.Node != r.Node && l.nodes[r.From.Node]
	return !twice && r.Kind != flow.End && r.Kind != flow.Tracked
}
