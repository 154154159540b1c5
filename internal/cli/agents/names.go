// SPDX-License-Identifier: Apache-2.0

package agents

import (
	"context"

	"github.com/weft-net/weft/internal/cluster/store"
)

// Nodes lists the nodes of the cluster, for completion.
func (s *Source) Nodes(ctx context.Context) ([]string, error) {
	c, err := s.Open(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, a := range c.Agents {
		out = append(out, a.Node)
	}
	return out, nil
}

// Pods lists the pods of the cluster as NAMESPACE/NAME, for completion.
func (s *Source) Pods(ctx context.Context) ([]string, error) {
	c, err := s.Open(ctx)
	if err != nil || c.Objects == nil {
		return nil, err
	}
	var out []string
	err = store.Each(ctx, c.Objects, store.Pods(), func(o store.Object) {
		out = append(out, o.Key.Namespace+"/"+o.Key.Name)
	})
	return out, err
}

// PodsAndNodes lists both, for completion.
func (s *Source) PodsAndNodes(ctx context.Context) ([]string, error) {
	nodes, err := s.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	pods, err := s.Pods(ctx)
	return append(pods, nodes...), err
}
