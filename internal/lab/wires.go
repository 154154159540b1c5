// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/lab/layout"
	"github.com/weft-net/weft/internal/netns"
)

// wires is the name of the bridges' namespace; no node has this name.
const wires = "wires"

// createNetwork creates the wires and the nodes' namespaces and links.
func (d Dir) createNetwork(ctx context.Context, l layout.Layout) (err error) {
	ns := map[string]*netns.NS{}
	defer func() {
		for _, n := range ns {
			_ = n.Close()
		}
	}()
	conns := map[string]*kernel.Conn{}
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	names := []string{wires}
	for _, n := range l.Nodes {
		names = append(names, n.Name)
	}
	for _, name := range names {
		if ns[name], err = netns.New(d.NS(name)); err != nil {
			delete(ns, name)
			return err
		}
		if conns[name], err = kernel.Dial(ns[name]); err != nil {
			delete(conns, name)
			return fmt.Errorf("namespace of %s: %w", name, err)
		}
	}
	if err := (kernel.Spaces{Host: conns[wires]}).Apply(ctx, l.Bridges()); err != nil {
		return fmt.Errorf("wires: %w", err)
	}
	for i, n := range l.Nodes {
		s := kernel.Spaces{Host: conns[wires], Pod: conns[n.Name], PodNS: ns[n.Name]}
		if err := s.Apply(ctx, l.NodeLinks(i)); err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	return nil
}
