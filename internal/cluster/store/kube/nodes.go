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

// WatchNodes follows the nodes and nothing else, for who may not or need not know more. Annotations that begin as given
// are kept, and given the beginning that they have in this house. It is called once.
func (s *Store) WatchNodes(ctx context.Context, begin, house string) (<-chan store.Event, error) {
	sh := newShelf(store.Nodes())
	keep := func(raw []byte) (store.Object, error) { return s.reduceNode(raw, begin, house) }
	return s.follow(ctx, keep, func() {}, sh), nil
}

// Node asks the server for one node, in the same form.
func (s *Store) Node(ctx context.Context, name, begin, house string) (store.Object, error) {
	key := store.NodeKey(name)
	raw, err := ask(ctx, patient, s.clients.work.Get().AbsPath(path(store.Nodes(), "", name)))
	if err != nil {
		return store.Object{}, understood(key, err)
	}
	return s.reduceNode(raw, begin, house)
}

// NodeOf asks the server on which node a pod runs; empty while it runs on none.
func (s *Store) NodeOf(ctx context.Context, namespace, pod string) (string, error) {
	key := store.PodKey(namespace, pod)
	raw, err := ask(ctx, patient, s.clients.work.Get().AbsPath(path(pods(), namespace, pod)))
	if err != nil {
		return "", understood(key, err)
	}
	var p struct{ Spec struct{ NodeName string } }
	if err := json.Unmarshal(raw, &p); err != nil {
		return "", fmt.Errorf("%s: %w", key, err)
	}
	return p.Spec.NodeName, nil
}

// reduceNode keeps what routes to a node's pods need. Nonsense in the node's own annotations is as nothing: it writes
// them.
func (s *Store) reduceNode(raw []byte, begin, house string) (store.Object, error) {
	var f fact
	if err := json.Unmarshal(raw, &f); err != nil {
		return store.Object{}, fmt.Errorf("node %s of the API server: %w", f.Metadata.Name, err)
	}
	kept := map[string]string{}
	for name, value := range f.Metadata.Annotations {
		if rest, ok := strings.CutPrefix(name, begin); ok {
			kept[house+rest] = value
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

// NodeStatus is what a network's daemon writes to its node.
type NodeStatus struct {
	Annotations map[string]string
	// Dropped are annotations that are taken away.
	Dropped []string
	// Available clears the condition NetworkUnavailable, with a reason and a message.
	Available       bool
	Reason, Message string
}

// PatchNode writes to a node through its status, so that nobody needs the right to change nodes.
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
	if n.Available {
		now := s.cfg.Now().UTC().Format(time.RFC3339)
		patch["status"] = map[string]any{"conditions": []any{map[string]any{
			"type": "NetworkUnavailable", "status": "False", "reason": n.Reason, "message": n.Message,
			"lastTransitionTime": now, "lastHeartbeatTime": now,
		}}}
	}
	b, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	_, err = ask(ctx, patient, s.clients.work.Patch(types.StrategicMergePatchType).
		AbsPath(path(store.Nodes(), "", name, "status")).Param("fieldManager", manager).Body(b))
	return understood(store.NodeKey(name), err)
}
