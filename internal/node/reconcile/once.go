// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"

	"github.com/weft-net/weft/internal/model"
)

// Once makes one pass for a snapshot of the cluster, like Run at its start or after a change: for benchmarks, and for
// callers whose facts do not change by themselves. It must not be called concurrently, or while Run runs.
func (r *Reconciler) Once(ctx context.Context, c *model.Cluster) (Status, error) {
	status, err := r.reconcile(ctx, c, false)
	if ctx.Err() == nil {
		r.publish(status, err)
	}
	return status, err
}
