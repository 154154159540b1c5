// SPDX-License-Identifier: Apache-2.0

package flowserver

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/kube"
)

// withdrawLongest is the longest pause between two attempts to withdraw.
const withdrawLongest = 5 * time.Minute

// Withdrawal is the removal of an annotation that an earlier agent of the node has published.
type Withdrawal struct {
	Node    string
	Objects interface {
		Get(ctx context.Context, kind store.Kind, key store.Key) (store.Object, error)
	}
	API interface {
		PatchNode(ctx context.Context, name string, status kube.NodeStatus) error
	}
	Log   *slog.Logger
	After func(time.Duration) <-chan time.Time
}

// Run removes the annotation, as an agent without observe.listen does: otherwise clients would try an address at which no
// agent listens, or another program does. It tries until it succeeds, or ctx ends. The error is always nil.
func (w Withdrawal) Run(ctx context.Context) error {
	for pause, failed := retryPause, false; ; pause, failed = min(2*pause, withdrawLongest), true {
		err := w.try(ctx)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if !failed {
			w.Log.Warn("annotation of a listener of flows that is not configured any more cannot be removed yet", "err", err)
		}
		select {
		case <-w.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

func (w Withdrawal) try(ctx context.Context) error {
	o, err := w.Objects.Get(ctx, store.Nodes(), store.NodeKey(w.Node))
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, has, err := o.FlowListener(); !has && err == nil {
		return nil
	}
	return w.API.PatchNode(ctx, w.Node, kube.NodeStatus{Dropped: []string{store.FlowListenerAnnotation}})
}
