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

// registerAgain is the pause before a node object that could not be written is retried.
const registerAgain = 2 * time.Second

// Register creates the object of this node; without it, other nodes reclaim its blocks after a while. There is no
// Kubernetes to do it. Operators delete the objects of nodes that were removed.
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
			log.Warn("agent could not create the node's object, and retries", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-after(registerAgain):
		}
	}
}
