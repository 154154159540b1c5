// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// finalizer keeps a pool of the cluster's network until no node has a block of it: addresses without a pool have no
// owner, and a new pool with the same range would allocate them twice.
const finalizer = "weft.dev/blocks"

// finalizerEdit returns the edit that adds the finalizer, or removes it once the pool may be deleted. Objects without a
// UID, in stores other than Kubernetes, have no finalizers.
func (s *poolState) finalizerEdit(p model.AddressPool) store.Edit {
	return func(fields map[string]any) error {
		meta, ok := fields["metadata"].(map[string]any)
		if !ok || meta["uid"] == nil {
			return nil
		}
		have, _ := meta["finalizers"].([]any)
		is := slices.Contains(have, any(finalizer))
		want := p.IsClusterPool() && (!p.Deleted || s.blockCount(p.Name)+s.inServices[p.Name] > 0)
		switch {
		case is == want, want && p.Deleted: // a finalizer cannot be added to a deleted object
			return nil
		case want:
			have = append(have, finalizer)
		default:
			have = slices.DeleteFunc(have, func(x any) bool { return x == finalizer })
		}
		if meta["finalizers"] = have; len(have) == 0 {
			delete(meta, "finalizers")
		}
		return nil
	}
}

// ConditionExhausted is true if a node finds no free address in the pool.
const ConditionExhausted = "Exhausted"

// The reasons of ConditionExhausted.
const (
	reasonNoFreeAddress      = "NoFreeAddress"
	reasonAddressesAvailable = "AddressesAvailable"
)

// The reasons of the events about pools.
const (
	eventNotAllocatable = "PoolNotAllocatable"
	eventAllocatable    = "PoolAllocatable"
	eventExhausted      = "PoolExhausted"
	eventNotExhausted   = "PoolNotExhausted"
)

// writeConditions writes each pool's conditions Allocatable and Exhausted.
func (s *poolState) writeConditions(ctx context.Context) {
	all := model.PoolConditions(s.sorted())
	for name, err := range s.invalid {
		all[name] = model.Condition{Type: model.ConditionAllocatable, Reason: model.ReasonInvalid, Message: err.Error()}
	}
	for _, name := range s.names() {
		s.writePoolCondition(ctx, name, all[name], allocatableEvent(all[name]))
		if spec, ok := s.specs[name]; ok {
			c := exhausted(spec.ExhaustedOn)
			s.writePoolCondition(ctx, name, c, exhaustedEvent(c))
		}
	}
}

// writePoolCondition writes a condition of a pool, with an event if its status has changed.
func (s *poolState) writePoolCondition(ctx context.Context, name string, c model.Condition, e model.Event) {
	got, err := s.conditions.write(ctx, store.AddressPools(), s.pools[name], c, e)
	if err != nil {
		s.problems = append(s.problems, err)
		return
	}
	s.set(got)
}

// allocatableEvent returns the event of a pool whose condition Allocatable has changed.
func allocatableEvent(c model.Condition) model.Event {
	if c.True {
		return model.Event{Reason: eventAllocatable, Message: c.Message}
	}
	return model.Event{
		Warning: c.Reason != model.ReasonPoolDisabled && c.Reason != model.ReasonTerminating,
		Reason:  eventNotAllocatable, Message: c.Reason + ": " + c.Message,
	}
}

// exhausted returns the condition of a pool by the nodes that find no free address in it.
func exhausted(nodes []string) model.Condition {
	if len(nodes) == 0 {
		return model.Condition{
			Type: ConditionExhausted, Reason: reasonAddressesAvailable, Message: "no node reports that it finds no free address",
		}
	}
	const named = 3
	names := slices.Sorted(slices.Values(nodes))
	text := strings.Join(names[:min(len(names), named)], ", ")
	if more := len(names) - named; more > 0 {
		text += fmt.Sprintf(" and %d more nodes", more)
	}
	return model.Condition{
		Type: ConditionExhausted, True: true, Reason: reasonNoFreeAddress, Message: "no free address on " + text +
			": add a region to the pool, or release addresses (weft ipam check lists leaked ones)",
	}
}

// exhaustedEvent returns the event of a pool whose condition Exhausted has changed.
func exhaustedEvent(c model.Condition) model.Event {
	if c.True {
		return model.Event{Warning: true, Reason: eventExhausted, Message: c.Message}
	}
	return model.Event{Reason: eventNotExhausted, Message: c.Message}
}

// Events creates events on objects.
type Events interface {
	// EventOn records an event.
	EventOn(ctx context.Context, kind store.Kind, o store.Object, e model.Event) error
	// StateEvent records an event that is written once while the server keeps it.
	StateEvent(kind store.Kind, o store.Object, e model.Event)
}

// conditionWriter writes conditions, and events about their changes.
type conditionWriter struct {
	objects store.Objects
	events  Events // nil: none are written
	now     time.Time
}

// write writes a condition into an object's status if it has changed, or was observed for an older generation. The
// event is written if the status of the condition has changed, or the condition is new and the event a warning. Of a
// concurrent change the next pass takes care. It returns the object as it is stored.
func (w conditionWriter) write(
	ctx context.Context, kind store.Kind, o store.Object, c model.Condition, e model.Event,
) (store.Object, error) {
	have, is := o.Conditions()[c.Type]
	if is && have == c && o.Observed(c.Type) {
		return o, nil
	}
	next, err := o.Edited(store.WithCondition(c, w.now))
	if err != nil {
		return o, err
	}
	got, err := w.objects.CompareAndSwapStatus(ctx, kind, o.Version, next)
	switch {
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrNotFound):
		return o, nil
	case err != nil:
		return o, fmt.Errorf("%s: %w", o.Key, err)
	case got.Conditions()[c.Type] != c:
		return o, model.Errorf(model.CodeInvalidConf, "apply deploy/crds.yaml of this version",
			"%s: the server drops status.conditions: its definition of %s is of an older version", o.Key, kind.Kind)
	}
	if w.events != nil && (is && have.True != c.True || e.Warning && have.Reason != c.Reason) {
		err = w.events.EventOn(ctx, kind, got, short(e))
	}
	return got, err
}

// maxMessage is the longest message of an event that Kubernetes accepts, in bytes; conditions are limited alike.
const maxMessage = 1024

// short limits the message of an event.
func short(e model.Event) model.Event {
	e.Message = shortened(e.Message)
	return e
}

func shortened(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage-3], "") + "..."
}
