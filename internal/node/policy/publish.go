// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

const (
	// publishPause gathers the ADDs of a burst.
	publishPause = 20 * time.Millisecond
	// publishAgain is the pause before a write is tried again, from the first to the longest.
	publishAgain, publishLongest = 100 * time.Millisecond, 5 * time.Second
)

// publish keeps the object that tells the other nodes of this one's interfaces, until ctx ends. Nothing is written
// while there is no policy.
func (e *Enforcer) publish(ctx context.Context) error {
	var have store.Object // as it was last seen
	pause := publishAgain
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.news:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-e.cfg.After(publishPause):
		}
		all, wanted := e.interfaces()
		if !wanted {
			continue
		}
		next, err := e.publishOnce(ctx, have, all)
		have = next
		if err == nil {
			pause = publishAgain
			continue
		}
		if ctx.Err() != nil {
			return nil
		}
		if !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrExists) {
			e.log.Warn("addresses of pods are not published yet", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-e.cfg.After(pause):
		}
		pause = min(2*pause, publishLongest)
		token(e.news)
	}
}

// interfaces are what is to be published; false while nobody wants to know.
func (e *Enforcer) interfaces() ([]model.WorkloadEndpoint, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []model.WorkloadEndpoint
	for _, l := range e.local {
		if l.done && !l.Standby && len(l.Addrs) > 0 {
			all = append(all, l.WorkloadEndpoint)
		}
	}
	slices.SortFunc(all, func(a, b model.WorkloadEndpoint) int {
		return cmp.Or(strings.Compare(a.Key().String(), b.Key().String()), strings.Compare(a.Pod.UID, b.Pod.UID))
	})
	return all, e.asked
}

// publishOnce writes the object if it says something else, and gives it as it is known now.
func (e *Enforcer) publishOnce(
	ctx context.Context, have store.Object, all []model.WorkloadEndpoint,
) (store.Object, error) {
	kind := store.NodeEndpoints()
	key := kind.Key("", e.cfg.Node)
	if have.Version == "" {
		now, err := e.cfg.Objects.Get(ctx, kind, key)
		switch {
		case errors.Is(err, store.ErrNotFound):
			next, err := store.NodeEndpointsObject(store.Object{}, e.cfg.Node, all)
			if err != nil {
				return store.Object{}, err
			}
			return e.made(e.cfg.Objects.Create(ctx, kind, e.owned(ctx, next)))
		case err != nil:
			return store.Object{}, err
		}
		have = now
	}
	next, err := store.NodeEndpointsObject(have, e.cfg.Node, all)
	if err != nil {
		return store.Object{}, err
	}
	if string(next.Raw) == string(have.Raw) {
		return have, nil
	}
	return e.made(e.cfg.Objects.CompareAndSwap(ctx, kind, have.Version, next))
}

// made is an object as it was written; after an error nobody knows.
func (e *Enforcer) made(o store.Object, err error) (store.Object, error) {
	if err != nil {
		return store.Object{}, err
	}
	return o, nil
}

// owned has the object go with its node.
func (e *Enforcer) owned(ctx context.Context, o store.Object) store.Object {
	node, err := e.cfg.Objects.Get(ctx, store.Nodes(), store.NodeKey(e.cfg.Node))
	if err != nil {
		return o
	}
	if with, err := o.OwnedBy(node); err == nil {
		return with
	}
	return o
}
