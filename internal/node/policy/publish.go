// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

const (
	// publishPause batches the ADDs of a burst.
	publishPause = 20 * time.Millisecond
	// publishAgain and publishLongest are the first and the longest pause before a write is retried.
	publishAgain, publishLongest = 100 * time.Millisecond, 5 * time.Second
)

// publisher publishes this node's interfaces to the other nodes, in one object.
type publisher struct {
	cfg     *Config
	log     *slog.Logger
	desired *desired
}

// publish keeps the object of this node's interfaces up to date until ctx ends. Nothing is written while there is no
// policy.
func (pb *publisher) publish(ctx context.Context) error {
	var have store.Object // as it was last seen
	pause := publishAgain
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-pb.desired.publishDue:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-pb.cfg.After(publishPause):
		}
		all, wanted := pb.interfaces()
		if !wanted {
			continue
		}
		next, err := pb.publishOnce(ctx, have, all)
		have = next
		if err == nil {
			pause = publishAgain
			continue
		}
		if ctx.Err() != nil {
			return nil
		}
		if !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrExists) {
			pb.log.Warn("addresses of pods could not be published; agent retries", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-pb.cfg.After(pause):
		}
		pause = min(2*pause, publishLongest)
		pb.desired.publishDue.Notify()
	}
}

// interfaces returns the interfaces to publish; false while no node needs them.
func (pb *publisher) interfaces() ([]model.WorkloadEndpoint, bool) {
	pb.desired.mu.Lock()
	defer pb.desired.mu.Unlock()
	var all []model.WorkloadEndpoint
	for _, l := range pb.desired.local {
		if l.done && !l.Standby && len(l.Addrs) > 0 {
			all = append(all, l.WorkloadEndpoint)
		}
	}
	slices.SortFunc(all, func(a, b model.WorkloadEndpoint) int {
		return cmp.Or(strings.Compare(a.Key().String(), b.Key().String()), strings.Compare(a.Pod.UID, b.Pod.UID))
	})
	return all, pb.desired.peersWanted
}

// publishOnce writes the object if it differs, and returns the current one.
func (pb *publisher) publishOnce(
	ctx context.Context, have store.Object, all []model.WorkloadEndpoint,
) (store.Object, error) {
	kind := store.NodeEndpoints()
	key := kind.Key("", pb.cfg.Node)
	if have.Version == "" {
		now, err := pb.cfg.Objects.Get(ctx, kind, key)
		switch {
		case errors.Is(err, store.ErrNotFound):
			next, err := store.NodeEndpointsObject(store.Object{}, pb.cfg.Node, all)
			if err != nil {
				return store.Object{}, err
			}
			return pb.written(pb.cfg.Objects.Create(ctx, kind, pb.withOwner(ctx, next)))
		case err != nil:
			return store.Object{}, err
		}
		have = now
	}
	next, err := store.NodeEndpointsObject(have, pb.cfg.Node, all)
	if err != nil {
		return store.Object{}, err
	}
	if string(next.Raw) == string(have.Raw) {
		return have, nil
	}
	return pb.written(pb.cfg.Objects.CompareAndSwap(ctx, kind, have.Version, next))
}

// written returns the written object; after an error its state is unknown.
func (pb *publisher) written(o store.Object, err error) (store.Object, error) {
	if err != nil {
		return store.Object{}, err
	}
	return o, nil
}

// withOwner sets the Node as the object's owner, so that it is deleted with it.
func (pb *publisher) withOwner(ctx context.Context, o store.Object) store.Object {
	node, err := pb.cfg.Objects.Get(ctx, store.Nodes(), store.NodeKey(pb.cfg.Node))
	if err != nil {
		return o
	}
	if with, err := o.OwnedBy(node); err == nil {
		return with
	}
	return o
}
