// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"

	"github.com/weft-net/weft/internal/model"
)

// Once makes one pass for a picture of the cluster, as Run does when it begins or hears of a change: for who measures,
// and for who keeps a mesh without facts that change by themselves. It must not be called beside Run, or twice at a
// time.
func (r *Reconciler) Once(ctx context.Context, c *model.Cluster) (Status, error) {
	status, err := r.reconcile(ctx, c, false)
	if ctx.Err() == nil {
		r.tell(status, err)
	}
	return status, err
}
