// SPDX-License-Identifier: Apache-2.0

package dir

import (
	"context"
	"fmt"

	"github.com/weft-net/weft/internal/cluster/store"
)

// Objects returns the directory as a store.Objects.
func (s *Store) Objects() store.Objects { return objectStore{s} }

// objectStore adapts the store to store.Objects: reads and writes do not block, so a context is only checked before.
type objectStore struct{ s *Store }

func (o objectStore) Get(ctx context.Context, _ store.Kind, key store.Key) (store.Object, error) {
	if err := ctx.Err(); err != nil {
		return store.Object{}, fmt.Errorf("%s: %w", key, err)
	}
	return o.s.Get(key)
}

func (o objectStore) List(ctx context.Context, kind store.Kind) ([]store.Object, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", kind.Resource, err)
	}
	return o.s.list(func(k store.Key) bool { return isKind(k, kind) })
}

func (o objectStore) Watch(ctx context.Context, kinds ...store.Kind) (<-chan store.Event, error) {
	in, err := o.s.Watch(ctx)
	if err != nil {
		return nil, err
	}
	out := make(chan store.Event)
	go func() {
		defer close(out)
		for e := range in { // ends with ctx
			if e.Type == store.Added || e.Type == store.Modified || e.Type == store.Deleted {
				if !anyOf(e.Object.Key, kinds) {
					continue
				}
			}
			select {
			case out <- e:
			case <-ctx.Done():
			}
		}
	}()
	return out, nil
}

func (o objectStore) Create(ctx context.Context, _ store.Kind, x store.Object) (store.Object, error) {
	if err := ctx.Err(); err != nil {
		return x, fmt.Errorf("%s: %w", x.Key, err)
	}
	return o.s.Create(ctx, x)
}

func (o objectStore) CompareAndSwap(
	ctx context.Context, _ store.Kind, version string, next store.Object,
) (store.Object, error) {
	if err := ctx.Err(); err != nil {
		return next, fmt.Errorf("%s: %w", next.Key, err)
	}
	return next, o.s.CompareAndSwap(ctx, version, next)
}

func (o objectStore) CompareAndSwapStatus(
	ctx context.Context, kind store.Kind, version string, next store.Object,
) (store.Object, error) {
	return o.CompareAndSwap(ctx, kind, version, next)
}

func (o objectStore) Delete(ctx context.Context, _ store.Kind, key store.Key, version string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return o.s.Delete(ctx, key, version)
}

func isKind(key store.Key, kind store.Kind) bool {
	return key.Group == kind.Group && key.Kind == kind.Kind
}

func anyOf(key store.Key, kinds []store.Kind) bool {
	for _, kind := range kinds {
		if isKind(key, kind) {
			return true
		}
	}
	return false
}
