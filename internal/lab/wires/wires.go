// SPDX-License-Identifier: Apache-2.0

// Package wires makes the network of a lab: a namespace with a bridge for each wire, and the nodes' namespaces, which are
// connected to them.
package wires

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/lab/layout"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// Name is the name of the bridges' namespace; no node has this name.
const Name = "wires"

// Net is the network of a lab. NS returns the path of a node's namespace, and of that of the bridges.
type Net struct {
	NS func(name string) string
}

// Create creates the wires and the nodes' namespaces and links.
func (n Net) Create(ctx context.Context, l layout.Layout) error {
	ns, err := netns.New(n.NS(Name))
	if err != nil {
		return err
	}
	if err := ns.Close(); err != nil {
		return err
	}
	return n.Do(func(bridges kernel.Spaces) error {
		if err := bridges.Apply(ctx, l.Bridges()); err != nil {
			return fmt.Errorf("wires: %w", err)
		}
		for i := range l.Nodes {
			if err := n.connect(ctx, bridges, l, i); err != nil {
				return fmt.Errorf("node %s: %w", l.Nodes[i].Name, err)
			}
		}
		return nil
	})
}

// connect creates the namespace and the links of node i.
func (n Net) connect(ctx context.Context, bridges kernel.Spaces, l layout.Layout, i int) error {
	ns, err := netns.New(n.NS(l.Nodes[i].Name))
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	conn, err := kernel.Dial(ns)
	if err != nil {
		return fmt.Errorf("namespace: %w", err)
	}
	defer func() { _ = conn.Close() }()
	return kernel.Spaces{Host: bridges.Host, Pod: conn, PodNS: ns}.Apply(ctx, l.NodeLinks(i))
}

// Add connects the last node of the layout, and writes its MAC addresses into the neighbor tables of the others. The
// node's namespace must not exist.
func (n Net) Add(ctx context.Context, l layout.Layout) error {
	last := len(l.Nodes) - 1
	if err := n.onOthers(l.Nodes[last].Name, l, func(s kernel.Spaces, f state.Fragment) error { return s.Apply(ctx, f) }); err != nil {
		return err
	}
	return n.Do(func(bridges kernel.Spaces) error { return n.connect(ctx, bridges, l, last) })
}

// Remove removes a node's ports, its namespace, and its MAC addresses from the nodes of the layout, which may have
// the node. It removes what there is.
func (n Net) Remove(ctx context.Context, l layout.Layout, node layout.Node) error {
	l.Nodes = append(l.Without(node.Name).Nodes, node)
	if err := n.onOthers(node.Name, l, func(s kernel.Spaces, f state.Fragment) error { return s.Remove(ctx, f) }); err != nil {
		return err
	}
	if err := n.Do(func(bridges kernel.Spaces) error { return bridges.Remove(ctx, l.Ports(node)) }); err != nil {
		return err
	}
	return netns.Remove(n.NS(node.Name))
}

// onOthers calls f for each other node with a node's neighbor entries there.
func (n Net) onOthers(node string, l layout.Layout, f func(kernel.Spaces, state.Fragment) error) error {
	for _, other := range l.Nodes {
		if other.Name == node {
			continue
		}
		ns, err := netns.Open(n.NS(other.Name))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, netns.ErrGone) {
			continue // it is removed, too
		}
		if err != nil {
			return fmt.Errorf("node %s: %w", other.Name, err)
		}
		err = in(ns, func(s kernel.Spaces) error { return f(s, l.NeighborsFor(node)) })
		if err = errors.Join(err, ns.Close()); err != nil {
			return fmt.Errorf("node %s: %w", other.Name, err)
		}
	}
	return nil
}

// Do calls f with the namespace of the bridges.
func (n Net) Do(f func(kernel.Spaces) error) error {
	ns, err := netns.Open(n.NS(Name))
	if err != nil {
		return fmt.Errorf("wires: %w", err)
	}
	defer func() { _ = ns.Close() }()
	return in(ns, f)
}

// in calls f with a namespace.
func in(ns *netns.NS, f func(kernel.Spaces) error) error {
	conn, err := kernel.Dial(ns)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return f(kernel.Spaces{Host: conn})
}
