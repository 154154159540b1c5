// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"time"

	"github.com/weft-net/weft/internal/flow"
)

// ringSize is how many lines are kept with the level denied or flows, about 700 bytes each.
const ringSize = 8192

// ring has the last flows, and what was lost of them, and sums of those before. It is not safe for concurrent use.
type ring struct {
	lines []flow.Line
	next  int // the oldest, once it is full
	sums  sums
}

// add keeps a line, in the place of the oldest one, which is summed up.
func (r *ring) add(l flow.Line) {
	if len(r.lines) < ringSize {
		r.lines = append(r.lines, l)
		return
	}
	r.sums.add(r.lines[r.next])
	r.lines[r.next] = l
	r.next = (r.next + 1) % ringSize
}

// since returns the lines that are not older than a time, the oldest first: sums, and then single flows. If there were
// more, from is the time after which none is missing.
func (r *ring) since(t time.Time) (out []flow.Line, from time.Time) {
	out, from = r.sums.since(t)
	for i := range r.lines {
		if l := r.lines[(r.next+i)%len(r.lines)]; !timeOf(l).Before(t) {
			out = append(out, l)
		}
	}
	return out, from
}

// timeOf returns the time of a flow, or of a loss.
func timeOf(l flow.Line) time.Time {
	if l.Flow != nil {
		return l.Flow.Time
	}
	return l.Lost.Time
}
