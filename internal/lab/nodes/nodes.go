// SPDX-License-Identifier: Apache-2.0

// Package nodes adds nodes to a lab that is up, and removes them.
//
// The marker of the lab has a node as joining before anything of it is created, and as leaving before anything of it is
// undone. So the next command about a node completes what one that was killed has begun, and no pod is bound to the node
// meanwhile. A node that is removed is treated like a host that was switched off and whose Node object was deleted: its
// pods are deleted, and its addresses are free.
package nodes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/ipam/audit"
	"github.com/weft-net/weft/internal/lab"
	"github.com/weft-net/weft/internal/lab/layout"
	"github.com/weft-net/weft/internal/lab/teardown"
	"github.com/weft-net/weft/internal/lab/workload"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/reconcile"
	"github.com/weft-net/weft/internal/sandbox/process"
)

// Changer changes the nodes of a lab. Its Wait bounds the time until all agents have followed.
type Changer struct {
	workload.Changer
	// Self is this program, and Env the environment of the nodes' processes.
	Self string
	Env  []string
}

// discard removes everything of a node that joins or leaves, in whatever state it is, and then its entry in the marker.
func (c Changer) discard(ctx context.Context, m *lab.Marker, n layout.Node) error {
	in := c.Dir.Node(n.Name)
	find := func() ([]process.ID, error) {
		namespaces, err := teardown.NodeNamespaces(c.Dir.NS(n.Name), in)
		if err != nil {
			return nil, err
		}
		return teardown.Processes(namespaces, teardown.Node(string(c.Dir), in))
	}
	if err := teardown.Kill(ctx, find); err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	if err := teardown.Unmount(in); err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	if err := c.deleteObjects(ctx, n.Name); err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	if err := c.Dir.Net().Remove(ctx, m.Layout, n); err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	if err := os.RemoveAll(in); err != nil {
		return fmt.Errorf("node %s: files: %w", n.Name, err)
	}
	m.Joining, m.Leaving = without(m.Joining, n.Name), without(m.Leaving, n.Name)
	return c.Dir.Write(*m)
}

// deleteObjects deletes a node's object, the object of its agent that the garbage collector of a cluster deletes with it, and
// its pods, and makes its addresses free.
func (c Changer) deleteObjects(ctx context.Context, node string) error {
	s, err := dir.Open(c.Dir.Store())
	if err != nil {
		return err
	}
	for _, key := range []store.Key{store.NodeKey(node), store.NodeEndpoints().Key("", node)} {
		if err := s.Delete(ctx, key, ""); err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
	objects, err := s.List("Pod")
	if err != nil {
		return err
	}
	for _, o := range objects {
		p, err := o.Pod()
		if err != nil || p.Node != node {
			continue
		}
		if err := s.Delete(ctx, o.Key, ""); err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		c.Logf("%s deleted: it was on %s", o.Key, node)
	}
	return release(ctx, s.Objects(), node)
}

// release makes the addresses of a deleted node free, as the controller of a cluster does in time, and `weft ipam check
// --fix` at once: nothing of the node runs any more.
func release(ctx context.Context, objects store.Objects, node string) error {
	const tries = 10
	var err error
	for range tries {
		var report audit.Report
		if report, err = audit.Inspect(ctx, objects); err != nil {
			return err
		}
		left := slices.DeleteFunc(report.Findings, func(f audit.Finding) bool { return f.GoneNode() != node })
		if _, err = audit.Repair(ctx, objects, left); !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return model.Errorf(model.CodeTryAgain, "repeat the command", "addresses of node %s: other nodes write all the time: %w",
		node, err)
}

func without(all []layout.Node, name string) []layout.Node {
	return slices.DeleteFunc(slices.Clone(all), func(n layout.Node) bool { return n.Name == name })
}

func find(all []layout.Node, name string) (layout.Node, bool) {
	i := slices.IndexFunc(all, func(n layout.Node) bool { return n.Name == name })
	if i < 0 {
		return layout.Node{}, false
	}
	return all[i], true
}

// await waits until the agents that run have every other node as a peer, and no more.
func (c Changer) await(ctx context.Context, l layout.Layout) error {
	reader := lab.NewStatusReader(c.Dir)
	return c.Until(ctx, "not all agents know the lab's nodes", func() ([]string, error) {
		st, err := reader.Status(ctx)
		if err != nil {
			return nil, err
		}
		var missing []string
		for _, n := range st.Nodes {
			if n.Agent != lab.Running {
				continue // the status says so
			}
			missing = append(missing, c.unsynced(ctx, l, n.Name)...)
		}
		return missing, nil
	})
}

// unsynced lists how the peers of a node's agent differ from the nodes of the lab.
func (c Changer) unsynced(ctx context.Context, l layout.Layout, node string) []string {
	status, err := reconcile.AskStatus(ctx, c.Dir.Node(node, "agent"))
	if err != nil {
		return []string{fmt.Sprintf("the agent of %s does not answer: %v", node, err)}
	}
	var out []string
	known := map[string]bool{node: true}
	for _, p := range status.Topology.Peers {
		known[p.Name] = true
		switch {
		case !l.Has(p.Name):
			out = append(out, fmt.Sprintf("%s still has peer %s", node, p.Name))
		case len(status.Topology.PeerPaths(p)) == 0 && !status.Topology.WaitsForAddresses(p):
			out = append(out, fmt.Sprintf("%s has no path to %s", node, p.Name))
		}
	}
	for _, n := range l.Nodes {
		if !known[n.Name] {
			out = append(out, fmt.Sprintf("%s does not have peer %s", node, n.Name))
		}
	}
	return out
}
