// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/audit"
	"github.com/weft-net/weft/internal/model"
)

// ConditionConsistent is the condition of a pool, block or claim without findings: blocks, reservations, nodes and pods
// agree.
const ConditionConsistent = "Consistent"

// reservationGrace is how long a reservation's pod must have been gone before it is deleted, because the lists of a
// starting server may be incomplete.
const reservationGrace = 15 * time.Minute

// check audits all pools, blocks, nodes and pods, and writes the result into each pool's status. It repairs only
// reservations for imported pods that are gone.
func (c *Controller) check(ctx context.Context) error {
	now := c.cfg.Now()
	result, err := audit.Inspect(ctx, c.cfg.Objects)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.report.Findings, c.report.Checked, c.checked = result.Findings, now, now
	c.mu.Unlock()
	var errs []error
	var due []audit.Finding
	still := map[string]time.Time{}
	for _, f := range result.Findings {
		if !f.Stale() {
			continue
		}
		id := f.Object + "\x00" + f.Msg
		since, known := c.goneSince[id]
		if !known {
			since = now
		}
		if still[id] = since; known && now.Sub(since) >= reservationGrace {
			due = append(due, f)
		}
	}
	removed, err := audit.Repair(ctx, c.cfg.Objects, due)
	if err != nil && !errors.Is(err, store.ErrConflict) { // a pool that has changed meanwhile is retried by the next audit
		errs = append(errs, err)
	}
	for _, f := range removed {
		c.cfg.Log.Info("reservation of a deleted pod was removed", "object", f.Object, "finding", f.Msg)
		delete(still, f.Object+"\x00"+f.Msg)
	}
	c.goneSince = still
	return errors.Join(append(errs, c.reportFindings(ctx, result.Findings, now))...)
}

// The reasons of ConditionConsistent are the classes of findings, and this one if there are none.
const reasonNoFindings = "NoFindings"

// The reasons of the events about the result of an audit.
const (
	eventInconsistent = "Inconsistent"
	eventConsistent   = "Consistent"
)

// reportFindings writes the result of an audit into the status of pools, blocks and claims. A block or claim without
// findings has the condition only if it had findings before: there are many. Reservations have no status.
func (c *Controller) reportFindings(ctx context.Context, findings []audit.Finding, now time.Time) error {
	w := conditionWriter{objects: c.cfg.Objects, events: c.cfg.Events, now: now}
	of := map[store.Key][]audit.Finding{}
	for _, f := range findings {
		o, ok := f.About()
		if f.Pool != "" && (!ok || !o.Key.Of(store.AddressPools())) {
			key := store.AddressPools().Key("", f.Pool)
			of[key] = append(of[key], f)
		}
		if ok {
			of[o.Key] = append(of[o.Key], f)
		}
		if ok && o.Key.Of(store.AddressReservations()) && c.cfg.Events != nil {
			c.cfg.Events.StateEvent(store.AddressReservations(), o, short(consistentEvent(consistent([]audit.Finding{f}))))
		}
	}
	var errs []error
	for _, kind := range []store.Kind{store.AddressPools(), store.AddressBlocks(), store.AddressClaims()} {
		all, err := list(ctx, c.cfg.Objects, kind)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, o := range all {
			found := of[o.Key]
			if _, had := o.Conditions()[ConditionConsistent]; !had && len(found) == 0 && kind != store.AddressPools() {
				continue
			}
			condition := consistent(found)
			if _, err := w.write(ctx, kind, o, condition, consistentEvent(condition)); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// consistent returns the condition of an object with these findings. Its reason is the most severe class.
func consistent(findings []audit.Finding) model.Condition {
	if len(findings) == 0 {
		return model.Condition{
			Type: ConditionConsistent, True: true, Reason: reasonNoFindings, Message: "blocks, reservations, nodes and pods agree",
		}
	}
	severity := func(f audit.Finding) int { return slices.Index(audit.Reasons(), f.Reason) }
	worst := slices.MinFunc(findings, func(a, b audit.Finding) int { return cmp.Compare(severity(a), severity(b)) })
	says := worst.Object + ": " + worst.Msg
	if n := len(findings); n > 1 {
		says = fmt.Sprintf("%d findings, first %s", n, says)
	}
	return model.Condition{Type: ConditionConsistent, Reason: string(worst.Reason), Message: shortened(says)}
}

// consistentEvent returns the event of an object whose condition Consistent has changed.
func consistentEvent(c model.Condition) model.Event {
	if c.True {
		return model.Event{Reason: eventConsistent, Message: c.Message}
	}
	return model.Event{Warning: true, Reason: eventInconsistent, Message: c.Reason + ": " + c.Message}
}

// annotation returns an object's annotation.
func annotation(o store.Object, key string) string {
	var head struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if json.Unmarshal(o.Raw, &head) != nil {
		return ""
	}
	return head.Metadata.Annotations[key]
}
