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

// driftWindow: drift in a pod that recurs within this time is taken to be the pod's intention.
const driftWindow = 10 * time.Minute

// driftKey identifies one object of an attachment that can drift.
type driftKey struct {
	space state.SpaceName
	want  string
}

// driftHistory is the history of a drift.
type driftHistory struct {
	// repaired is the time of the last repair, zero before the first one.
	repaired time.Time
	// left: the drift was reported, was not repaired and still exists. changed: it was left because the object was
	// changed and not missing; a link that was changed and goes down later is another drift.
	left, changed bool
	// recurring: it was reported as recurring within the window.
	recurring bool
}

// decision says how a drift is handled.
type decision struct {
	// repair: the planned state is restored; else the drift is left.
	repair bool
	// recurs: the same object was repaired less than driftWindow ago.
	recurs bool
	// report: it was not logged yet.
	report bool
}

// found is a difference, and what is known about its object.
type found struct {
	state.Difference
	// fixable: the object can be repaired.
	fixable bool
	// joins: the object is a port of a bridge in the pod, which joins a guest with its network.
	joins bool
}

// decide is the repair policy. On the node everything that weft made is always repaired. In a pod so are the joins of
// guests, also by a bridge, and weft's own rules, which fail closed; other missing objects are repaired once per
// driftWindow, and changed ones are left, because the pod's processes may have changed them on purpose. What cannot be
// repaired is left.
func decide(d found, past driftHistory, now time.Time) decision {
	recurs := !past.repaired.IsZero() && now.Sub(past.repaired) < driftWindow
	ours := d.Space == state.Host || kindOf(d.Difference) == "join" || kindOf(d.Difference) == "nft" ||
		d.joins && otherMaster(d.Difference)
	switch {
	case !d.fixable:
		return decision{report: !past.left}
	case ours:
		return decision{repair: true, recurs: recurs, report: !recurs || !past.recurring}
	case past.left && (!past.changed || d.Have == "" || !missing(d.Difference)):
		return decision{}
	case !missing(d.Difference):
		return decision{report: true}
	case recurs:
		return decision{recurs: true, report: true}
	}
	return decision{repair: true, report: true}
}

// missing reports whether an object is absent, down or without its master, rather than changed. A sysctl always has a
// value, so a different value counts as missing.
func missing(d state.Difference) bool {
	switch kindOf(d) {
	case "sysctl":
		return true
	case "no":
		return false
	case "link":
		return d.Have == "" || lacksUp(d) || otherMaster(d) && masterOf(d.Have) == ""
	}
	return d.Have == ""
}

// lacksUp reports whether a link that should be up is not.
func lacksUp(d state.Difference) bool {
	return strings.Contains(d.Want+" ", " up on ") && strings.Contains(d.Have+" ", " up off ")
}

// otherMaster reports whether an existing link is not a port of the master that it should have.
func otherMaster(d state.Difference) bool {
	want := masterOf(d.Want)
	return kindOf(d) == "link" && want != "" && d.Have != "" && want != masterOf(d.Have)
}

// masterOf returns the master of a link as it is printed, empty if it has none.
func masterOf(link string) string {
	link, _, _ = strings.Cut(link, " alias ") // comes last, and may contain anything
	_, rest, _ := strings.Cut(link, " master ")
	name, _, _ := strings.Cut(rest, " ")
	return name
}

// kindOf returns the first word of the planned state: "link", "addr", "route" …, or "no" for an object that must not
// exist.
func kindOf(d state.Difference) string {
	kind, _, _ := strings.Cut(d.Want, " ")
	return kind
}

// update returns the history after a decision was carried out.
func (p driftHistory) update(of state.Difference, d decision, now time.Time) driftHistory {
	p.recurring = d.recurs && (p.recurring || d.report)
	if !p.left {
		p.changed = !missing(of)
	}
	if p.left = !d.repair; d.repair {
		p.repaired = now
	}
	return p
}

// drifts stores the drift history of attachments.
type drifts struct {
	mu sync.Mutex
	of map[model.AttachmentKey]map[driftKey]driftHistory // nil where nothing has drifted
}

// history returns the history of a drift.
func (d *drifts) history(key model.AttachmentKey, of state.Difference) driftHistory {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.of[key][driftKey{of.Space, of.Want}]
}

// note stores how a drift was handled.
func (d *drifts) note(key model.AttachmentKey, of state.Difference, c decision, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of == nil {
		d.of = map[model.AttachmentKey]map[driftKey]driftHistory{}
	}
	if d.of[key] == nil {
		d.of[key] = map[driftKey]driftHistory{}
	}
	k := driftKey{of.Space, of.Want}
	d.of[key][k] = d.of[key][k].update(of, c, now)
}

// prune deletes the history of drifts that are gone, and of repairs older than driftWindow. found is the current drift.
func (d *drifts) prune(key model.AttachmentKey, found []state.Difference, now time.Time) {
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

// drop deletes an attachment's history.
func (d *drifts) drop(key model.AttachmentKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.of, key)
}
