// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/lab"
	"github.com/weft-net/weft/internal/lab/layout"
	"github.com/weft-net/weft/internal/lab/limits"
	"github.com/weft-net/weft/internal/model"
)

// parallel is the number of nodes that are started in parallel.
const parallel = 8

// Add adds nodes, or leaves nothing of them behind.
func (c Changer) Add(ctx context.Context, names []string) error {
	unlock, m, err := c.Dir.LockUp(ctx)
	if err != nil {
		return err
	}
	defer func() { unlock() }()
	added, err := c.plan(m, names)
	if err != nil {
		return err
	}
	for _, name := range names { // of a command that was killed
		for _, n := range slices.Concat(m.Joining, m.Leaving) {
			if n.Name != name {
				continue
			}
			if err := c.discard(ctx, &m, n); err != nil {
				return err
			}
		}
	}
	m.Joining = append(m.Joining, added...)
	if err := c.Dir.Write(m); err != nil {
		return err
	}
	if err := c.join(ctx, m, added); err != nil {
		return c.rollback(ctx, &m, added, err)
	}
	for _, n := range added {
		m.Joining = without(m.Joining, n.Name)
	}
	m.Layout.Nodes = append(m.Layout.Nodes, added...)
	if err := c.Dir.Write(m); err != nil {
		return err
	}
	unlock()
	unlock = func() {}
	if err := c.await(ctx, m.Layout); err != nil {
		return err
	}
	c.Logf("%s added", strings.Join(names, ", "))
	return nil
}

// plan returns the nodes to add. Their numbers are those of no node that another command has left half-way.
func (c Changer) plan(m lab.Marker, names []string) ([]layout.Node, error) {
	if err := (limits.Lab{Nodes: len(names)}).Check("/proc"); err != nil {
		return nil, err
	}
	l := m.Layout
	for _, n := range slices.Concat(m.Joining, m.Leaving) {
		if !slices.Contains(names, n.Name) {
			l.Nodes = append(slices.Clone(l.Nodes), n)
		}
	}
	had := len(l.Nodes)
	for _, name := range names {
		var err error
		if l, err = l.With(name); err != nil {
			return nil, err
		}
		if err := c.Dir.CheckNode(name); err != nil {
			return nil, err
		}
	}
	return l.Nodes[had:], nil
}

// join makes the nodes: their objects, as a kubelet registers a node, their network, and their processes.
func (c Changer) join(ctx context.Context, m lab.Marker, added []layout.Node) error {
	s, err := dir.Open(c.Dir.Store())
	if err != nil {
		return err
	}
	l := m.Layout
	for _, n := range added {
		if err := lab.WriteNode(ctx, s, n); err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
		l.Nodes = append(slices.Clone(l.Nodes), n)
		if err := c.Dir.Net().Add(ctx, l); err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	up := lab.Resume(c.Dir, m, c.Self, c.Env, c.Logf)
	ctx, died := context.WithCancelCause(ctx)
	defer died(nil)
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, n := range added {
		group.Go(func() error { return up.StartNode(gctx, n, died) })
	}
	err = group.Wait()
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx) // why a process exited, or the command was stopped
	}
	return err
}

// rollback removes what a failed Add has made. It has its own deadline, because Add may have been stopped.
func (c Changer) rollback(ctx context.Context, m *lab.Marker, added []layout.Node, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	errs := []error{cause}
	for _, n := range added {
		if err := c.discard(ctx, m, n); err != nil {
			errs = append(errs, fmt.Errorf("rollback: %w", err))
		}
	}
	if len(errs) > 1 {
		return model.Errorf(model.CodeTryAgain, "repeat the command, or use `weft lab remove-node`", "%w", errors.Join(errs...))
	}
	return cause
}
