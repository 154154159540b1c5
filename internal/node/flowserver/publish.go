// SPDX-License-Identifier: Apache-2.0

package flowserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/weft-net/weft/api/v1alpha1"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/kube"
	"github.com/weft-net/weft/internal/model"
)

const (
	// publishPeriod is how often the published listener is checked: a Node object can be replaced, and its listener is
	// deleted with it. retryPause is the first pause after an error, and withdrawLongest the longest between two attempts to
	// withdraw.
	publishPeriod, retryPause, withdrawLongest = 10 * time.Minute, 5 * time.Second, 5 * time.Minute
)

// Publication is how clients find the listener of a node's agent: the node's FlowListener.
type Publication struct {
	Node    string
	Objects store.Objects
	// API removes the annotation in which an agent of an earlier version has published its listener.
	API interface {
		PatchNode(ctx context.Context, name string, status kube.NodeStatus) error
	}
	Log   *slog.Logger
	After func(time.Duration) <-chan time.Time
}

func (p Publication) key() store.Key { return store.FlowListeners().Key("", p.Node) }

// publish keeps l published until ctx ends.
func (p Publication) publish(ctx context.Context, l v1alpha1.FlowListenerSpec) {
	for failed := false; ; {
		pause := publishPeriod
		err := p.write(ctx, l)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			pause = retryPause
			if !failed {
				p.Log.Warn("listener of flows cannot be published yet", "err", err)
			}
		}
		failed = err != nil
		select {
		case <-p.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// write publishes l, owned by the Node, and removes an annotation of an agent of an earlier version.
func (p Publication) write(ctx context.Context, l v1alpha1.FlowListenerSpec) error {
	node, err := p.Objects.Get(ctx, store.Nodes(), store.NodeKey(p.Node))
	if err != nil {
		return err
	}
	kind := store.FlowListeners()
	have, err := p.Objects.Get(ctx, kind, p.key())
	none := errors.Is(err, store.ErrNotFound)
	if err != nil && !none {
		return err
	}
	if none {
		have = store.Object{}
	}
	next, err := store.FlowListenerObject(have, p.Node, l)
	if err == nil {
		next, err = next.OwnedBy(node)
	}
	switch {
	case err != nil:
		return err
	case none:
		_, err = p.Objects.Create(ctx, kind, next)
		if errors.Is(err, store.ErrNotFound) {
			err = model.Errorf(model.CodeNotAvailable, "kubectl apply -f deploy/crds.yaml", "the cluster has no kind %s: %w", kind.Kind, err)
		}
	case string(next.Raw) != string(have.Raw):
		_, err = p.Objects.CompareAndSwap(ctx, kind, have.Version, next)
	}
	if err != nil {
		return err
	}
	return p.dropAnnotation(ctx, node)
}

func (p Publication) dropAnnotation(ctx context.Context, node store.Object) error {
	if _, has, err := node.AnnotatedFlowListener(); !has {
		return err
	}
	return p.API.PatchNode(ctx, p.Node, kube.NodeStatus{Dropped: []string{store.FlowListenerAnnotation}})
}

// Withdraw removes what an earlier agent of the node has published, as an agent without observe.listen does: otherwise
// clients would try an address at which no agent listens, or another program does. It tries until it succeeds, or ctx ends.
// The error is always nil.
func (p Publication) Withdraw(ctx context.Context) error {
	for pause, failed := retryPause, false; ; pause, failed = min(2*pause, withdrawLongest), true {
		err := p.remove(ctx)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if !failed {
			p.Log.Warn("published listener of flows that is not configured any more cannot be removed yet", "err", err)
		}
		select {
		case <-p.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

func (p Publication) remove(ctx context.Context) error {
	o, err := p.Objects.Get(ctx, store.FlowListeners(), p.key())
	if err == nil {
		err = p.Objects.Delete(ctx, store.FlowListeners(), p.key(), o.Version)
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("listener: %w", err)
	}
	node, err := p.Objects.Get(ctx, store.Nodes(), store.NodeKey(p.Node))
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return p.dropAnnotation(ctx, node)
}
