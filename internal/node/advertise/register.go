// SPDX-License-Identifier: Apache-2.0

package advertise

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
)

// registerAgain is when a node that could not be written is tried again.
const registerAgain = 2 * time.Second

// Register creates the object of this node: blocks of a node that has no object are taken over in time. There is no
// Kubernetes to do it; people delete the objects of hosts that are gone for good.
func Register(
	ctx context.Context, objects store.Objects, name string, log *slog.Logger, after func(time.Duration) <-chan time.Time,
) error {
	node, err := store.NewObject(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Node","metadata":{"name":%q}}`, name))
	if err != nil {
		return err
	}
	trouble := ""
	for {
		_, err := objects.Create(ctx, store.Nodes(), node)
		if err == nil || errors.Is(err, store.ErrExists) || ctx.Err() != nil {
			return nil
		}
		if err.Error() != trouble {
			trouble = err.Error()
			log.Warn("this node is not written down yet; it is tried again", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-after(registerAgain):
		}
	}
}
