// SPDX-License-Identifier: Apache-2.0

package view

import (
	"time"

	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/node/nodestatus"
)

// The points of the chart of denied packets: while the page asks more often, some of its answers make one point.
const (
	deniedSpan   = 15 * time.Minute
	deniedStep   = 2 * time.Second
	deniedPoints = int(deniedSpan / deniedStep)
)

// DeniedLog has how many packets policies denied, by the counters of the rules, between two answers of the agents. Unlike
// flows these are all of them, and counting them costs agents nothing.
type DeniedLog struct {
	since  time.Time         // of the first answer
	at     time.Time         // of the last one that made a point
	counts map[string]uint64 // by node, at that time
	points []deniedPoint
}

type deniedPoint struct {
	at      time.Time
	packets uint64
	rate    float64
}

// Add adds the status of a cluster. A node that was silent adds what it denied meanwhile when it answers again.
func (l *DeniedLog) Add(c nodestatus.Cluster, now time.Time) {
	first := l.counts == nil
	if first {
		l.counts, l.since = map[string]uint64{}, now
	}
	took := now.Sub(l.at)
	if !first && took < deniedStep {
		return
	}
	packets := uint64(0)
	for _, s := range c.Statuses {
		switch before, known := l.counts[s.Node]; {
		case !known: // denied before, or by a node that is new
		case s.Denied >= before:
			packets += s.Denied - before
		default: // the agent was started again, and counts from zero
			packets += s.Denied
		}
		l.counts[s.Node] = s.Denied
	}
	if l.at = now; first {
		return
	}
	l.points = append(l.points, deniedPoint{now, packets, float64(packets) / took.Seconds()})
	l.points = l.points[max(0, len(l.points)-deniedPoints):]
}

// Rates returns what was denied of late, in packets. It has no points before the second answer.
func (l *DeniedLog) Rates(now time.Time) Rates {
	line := RateSeries{Verdict: string(flow.DeniedVerdict), Rates: []float64{}}
	out := Rates{Span: int(deniedSpan.Seconds()), Since: l.since.UnixMilli(), Times: []int64{}}
	for _, p := range l.points {
		if now.Sub(p.at) > deniedSpan {
			continue
		}
		out.Times = append(out.Times, p.at.UnixMilli())
		line.Rates = append(line.Rates, p.rate)
		line.Now, line.Peak, line.Flows = p.rate, max(line.Peak, p.rate), line.Flows+p.packets
	}
	out.Flows, out.Lines = line.Flows, []RateSeries{line}
	return out
}
