// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/weft-net/weft/internal/store"
)

// WatchNodes follows the nodes and nothing else, for who may not or need not know more. Annotations that begin as given are
// kept, and given the beginning that they have in this house. It is called once.
func (s *Store) WatchNodes(ctx context.Context, begin, house string) (<-chan store.Event, error) {
	sh := newShelf(store.Nodes())
	keep := func(raw []byte) (store.Object, error) { return reduceNode(raw, begin, house) }
	return s.follow(ctx, keep, func() {}, sh), nil
}

// reduceNode keeps what routes to a node's pods need.
func reduceNode(raw []byte, begin, house string) (store.Object, error) {
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
	small, err := json.Marshal(f)
	if err != nil {
		return store.Object{}, err
	}
	return store.NewObject(small)
}

// NodeStatus is what a network's daemon writes to its node.
type NodeStatus struct {
	Annotations map[string]string
	// Available clears the condition NetworkUnavailable, with a reason and a message.
	Available       bool
	Reason, Message string
}

// PatchNode writes to a node through its status, so that nobody needs the right to change nodes.
func (s *Store) PatchNode(ctx context.Context, name string, n NodeStatus) error {
	patch := map[string]any{}
	if len(n.Annotations) > 0 {
		patch["metadata"] = map[string]any{"annotations": n.Annotations}
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
