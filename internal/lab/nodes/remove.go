// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/lab"
	"github.com/weft-net/weft/internal/lab/cut"
	"github.com/weft-net/weft/internal/lab/layout"
	"github.com/weft-net/weft/internal/model"
)

// Remove removes nodes with everything that runs on them.
func (c Changer) Remove(ctx context.Context, names []string) error {
	unlock, m, err := c.Dir.LockUp(ctx)
	if err != nil {
		return err
	}
	defer func() { unlock() }()
	leaving, err := leave(&m, names)
	if err != nil {
		return err
	}
	if err := c.Dir.Write(m); err != nil {
		return err
	}
	if err := c.Dir.ApplyCuts(ctx, m); err != nil {
		return err
	}
	for _, n := range leaving {
		if err := c.discard(ctx, &m, n); err != nil {
			return err
		}
	}
	unlock()
	unlock = func() {}
	if err := c.await(ctx, m.Layout); err != nil {
		return err
	}
	c.Logf("%s removed", strings.Join(names, ", "))
	return nil
}

// leave marks nodes as leaving, and removes their cuts.
func leave(m *lab.Marker, names []string) ([]layout.Node, error) {
	var out []layout.Node
	for _, name := range names {
		n, ok := find(slices.Concat(m.Layout.Nodes, m.Joining, m.Leaving), name)
		if !ok {
			return nil, model.Errorf(model.CodeInvalidConf, "use one of the nodes that `weft lab status` lists", "node %q not found", name)
		}
		m.Layout = m.Layout.Without(name)
		m.Joining, m.Leaving = without(m.Joining, name), append(without(m.Leaving, name), n)
		m.Cuts = slices.DeleteFunc(slices.Clone(m.Cuts), func(cut cut.Cut) bool { return cut.From == name || cut.To == name })
		out = append(out, n)
	}
	if len(m.Layout.Nodes) == 0 {
		return nil, model.Errorf(model.CodeInvalidConf, "use `weft lab down` to remove the lab", "%s: a lab has at least one node",
			strings.Join(names, ", "))
	}
	return out, nil
}
