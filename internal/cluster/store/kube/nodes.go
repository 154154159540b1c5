// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/weft-net/weft/internal/cluster/store"
)

// WatchNodes watches the nodes only, for programs with fewer rights. Annotations with the prefix are kept and renamed
// to weft's own prefix. It must be called once.
func (s *Store) WatchNodes(ctx context.Context, prefix, ownPrefix string) (<-chan store.Event, error) {
	sh := newObjectCache(store.Nodes())
	keep := func(raw []byte) (store.Object, error) { return s.reduceNode(raw, prefix, ownPrefix) }
	return s.follow(ctx, keep, func() {}, sh), nil
}

// Node reads one node, in the same form.
func (s *Store) Node(ctx context.Context, name, prefix, ownPrefix string) (store.Object, error) {
	key := store.NodeKey(name)
	raw, err := do(ctx, requestTimeout, s.clients.work.Get().AbsPath(path(store.Nodes(), "", name)))
	if err != nil {
		return store.Object{}, storeError(key, err)
	}
	return s.reduceNode(raw, prefix, ownPrefix)
}

// NodeOf reads the node of a pod; empty if it is not scheduled.
func (s *Store) NodeOf(ctx context.Context, namespace, pod string) (string, error) {
	key := store.PodKey(namespace, pod)
	raw, err := do(ctx, requestTimeout, s.clients.work.Get().AbsPath(path(pods(), namespace, pod)))
	if err != nil {
		return "", storeError(key, err)
	}
	var p struct{ Spec struct{ NodeName string } }
	if err := json.Unmarshal(raw, &p); err != nil {
		return "", fmt.Errorf("%s: %w", key, err)
	}
	return p.Spec.NodeName, nil
}

// reduceNode keeps what routes to a node's pods need. Invalid annotations of this node are ignored, because it rewrites
// them.
func (s *Store) reduceNode(raw []byte, prefix, ownPrefix string) (store.Object, error) {
	var f fact
	if err := json.Unmarshal(raw, &f); err != nil {
		return store.Object{}, fmt.Errorf("node %s of the API server: %w", f.Metadata.Name, err)
	}
	kept := map[string]string{}
	for name, value := range f.Metadata.Annotations {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			kept[ownPrefix+rest] = value
		}
	}
	f.APIVersion, f.Kind = "v1", store.Nodes().Kind
	f.Metadata.Annotations, f.Metadata.Labels = kept, nil
	for {
		small, err := json.Marshal(f)
		if err != nil {
			return store.Object{}, err
		}
		o, err := store.NewObject(small)
		if err == nil || f.Metadata.Name != s.cfg.Node || f.Metadata.Annotations == nil {
			return o, err
		}
		f.Metadata.Annotations = nil
	}
}

// NodeStatus is the patch of a network's daemon for its node.
type NodeStatus struct {
	Annotations map[string]string
	// Dropped are annotations that are removed.
	Dropped []string
	// Condition, which may be nil, is the condition NetworkUnavailable.
	Condition *NetworkCondition
}

// NetworkCondition is the condition NetworkUnavailable of a node.
type NetworkCondition struct {
	Unavailable     bool
	Reason, Message string
	// Transition: the server has another status, or none. lastTransitionTime is written only then.
	Transition bool
}

// PatchNode patches a node through its status, so that the right to change nodes is not needed.
func (s *Store) PatchNode(ctx context.Context, name string, n NodeStatus) error {
	patch := map[string]any{}
	if annotations := map[string]any{}; len(n.Annotations)+len(n.Dropped) > 0 {
		for key, value := range n.Annotations {
			annotations[key] = value
		}
		for _, key := range n.Dropped {
			annotations[key] = nil
		}
		patch["metadata"] = map[string]any{"annotations": annotations}
	}
	if c := n.Condition; c != nil {
		now := s.cfg.Now().UTC().Format(time.RFC3339)
		condition := map[string]any{
			"type": "NetworkUnavailable", "status": "False", "reason": c.Reason, "message": c.Message, "lastHeartbeatTime": now,
		}
		if c.Unavailable {
			condition["status"] = "True"
		}
		if c.Transition {
			condition["lastTransitionTime"] = now
		}
		patch["status"] = map[string]any{"conditions": []any{condition}}
	}
	b, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	_, err = do(ctx, requestTimeout, s.clients.work.Patch(types.StrategicMergePatchType).
		AbsPath(path(store.Nodes(), "", name, "status")).Param("fieldManager", manager).Body(b))
	return storeError(store.NodeKey(name), err)
}
