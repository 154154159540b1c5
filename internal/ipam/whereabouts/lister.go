// SPDX-License-Identifier: Apache-2.0

package whereabouts

import (
	"context"

	"github.com/weft-net/weft/internal/cluster/store"
)

// ListerOf returns a Lister of whereabouts' objects, with the timeout of one request per kind.
func ListerOf(objects store.Objects) Lister {
	return func(ctx context.Context, kind store.Kind) ([]store.Object, error) {
		found, err := store.WithTimeout(
			ctx,
			func(ctx context.Context) ([]store.Object, error) { return objects.List(ctx, kind) },
		)
		if err != nil {
			return nil, store.Unreachable("whereabouts' "+kind.Resource, err)
		}
		return found, nil
	}
}
