// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// driftWindow is the time within which the same drift in a pod a second time means that the pod wants it so.
const driftWindow = 10 * time.Minute

// driftKey names one thing of an attachment that can drift.
type driftKey struct {
	space state.SpaceName
	want  string
}

// driftPast is what is remembered of a drift.
type driftPast struct {
	// repaired is the time of the last repair, zero before the first one.
	repaired time.Time
	// left: it was reported and left, and has not been as planned since.
	left bool
	// recurring: it was reported as coming back within the window.
	recurring bool
}

// decision is what is done about a drift.
type decision struct {
	// repair puts back what is planned; else it is left.
	repair bool
	// recurs: the same thing was repaired less than driftWindow ago.
	recurs bool
	// report: it is not known yet to those who read the log.
	report bool
}

// decide is the policy of repairs. On the node everything that weft made is put back, each time. In a pod the same
// holds for a guest's joins and for weft's own rules, which fail closed; what else is missing is put back once in
// driftWindow, and what differs is left: the pod's own processes may want it so. What cannot be put back is left
// everywhere.
func decide(d state.Difference, can bool, past driftPast, now time.Time) decision {
	recurs := !past.repaired.IsZero() && now.Sub(past.repaired) < driftWindow
	ours := d.Space == state.Host || kindOf(d) == "join" || kindOf(d) == "nft"
	switch {
	case !can:
		return decision{report: !past.left}
	case ours:
		return decision{repair: true, recurs: recurs, report: !recurs || !past.recurring}
	case past.left:
		return decision{}
	case !missing(d):
		return decision{report: true}
	case recurs:
		return decision{recurs: true, report: true}
	}
	return decision{repair: true, report: true}
}

// missing reports whether something is not there, or is switched off, rather than being another thing. A setting always
// has a value, so that one which differs is one that is missing.
func missing(d state.Difference) bool {
	switch kindOf(d) {
	case "sysctl":
		return true
	case "no":
		return false
	case "link":
		return d.Have == "" || lacksUp(d)
	}
	return d.Have == ""
}

// lacksUp reports whether a link that should be up is not.
func lacksUp(d state.Difference) bool {
	return strings.Contains(d.Want+" ", " up on ") && strings.Contains(d.Have+" ", " up off ")
}

// kindOf is the first word of what should be there: "link", "addr", "route" …, "no" for what should not.
func kindOf(d state.Difference) string {
	kind, _, _ := strings.Cut(d.Want, " ")
	return kind
}

// after is what is remembered when a decision was carried out.
func (p driftPast) after(d decision, now time.Time) driftPast {
	p.recurring = d.recurs && (p.recurring || d.report)
	if p.left = !d.repair; d.repair {
		p.repaired = now
	}
	return p
}

// drifts remembers the drift of attachments.
type drifts struct {
	mu sync.Mutex
	of map[model.AttachmentKey]map[driftKey]driftPast // nil where nothing has drifted
}

// past returns what is remembered of a drift.
func (d *drifts) past(key model.AttachmentKey, of state.Difference) driftPast {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.of[key][driftKey{of.Space, of.Want}]
}

// note remembers what was done about a drift.
func (d *drifts) note(key model.AttachmentKey, of state.Difference, c decision, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of == nil {
		d.of = map[model.AttachmentKey]map[driftKey]driftPast{}
	}
	if d.of[key] == nil {
		d.of[key] = map[driftKey]driftPast{}
	}
	k := driftKey{of.Space, of.Want}
	d.of[key][k] = d.of[key][k].after(c, now)
}

// settle forgets what was left and is as planned again, and repairs that are too long ago to matter. found is all that
// differs.
func (d *drifts) settle(key model.AttachmentKey, found []state.Difference, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for k, past := range d.of[key] {
		if slices.ContainsFunc(found, func(o state.Difference) bool { return o.Space == k.space && o.Want == k.want }) {
			continue
		}
		if past.left = false; past.repaired.IsZero() || now.Sub(past.repaired) >= driftWindow {
			delete(d.of[key], k)
		} else {
			d.of[key][k] = past
		}
	}
	if len(d.of[key]) == 0 {
		delete(d.of, key)
	}
}

// drop forgets an attachment.
func (d *drifts) drop(key model.AttachmentKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.of, key)
}
