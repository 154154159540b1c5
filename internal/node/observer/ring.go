// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"time"

	"github.com/weft-net/weft/internal/flow"
)

// ringSize is how many flows are kept with the level denied or flows, about 200 bytes each, and about 600 if they have nothing
// in common.
const ringSize = 8192

// ring has the last flows, and what was lost of them, and sums of those before. It is not safe for concurrent use.
type ring struct {
	entries []entry
	next    int // the oldest, once it is full
	sums    sums
}

// add keeps a flow, in the place of the oldest one, which is summed up.
func (r *ring) add(e entry) {
	if len(r.entries) < ringSize {
		r.entries = append(r.entries, e)
		return
	}
	r.sums.add(&r.entries[r.next])
	r.entries[r.next] = e
	r.next = (r.next + 1) % ringSize
}

// since returns the lines that are not older than a time, the oldest first: sums, and then single flows. If there were
// more, from is the time after which none is missing.
func (r *ring) since(t time.Time) (out []flow.Line, from time.Time) {
	out, from = r.sums.since(t)
	for i := range r.entries {
		if e := &r.entries[(r.next+i)%len(r.entries)]; !e.at.Before(t) {
			out = append(out, e.line())
		}
	}
	return out, from
}
