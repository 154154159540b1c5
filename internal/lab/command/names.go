// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"

	"github.com/weft-net/weft/internal/cli/complete"
	"github.com/weft-net/weft/internal/lab"
	"github.com/weft-net/weft/internal/lab/layout"
	"github.com/weft-net/weft/internal/sandbox"
	"github.com/weft-net/weft/internal/vm/launch"
)

// planned returns the lab's layout, for completion.
func (f *labFlags) planned() (layout.Layout, error) {
	d, err := lab.At(f.dir)
	if err != nil {
		return layout.Layout{}, err
	}
	m, err := d.Open()
	return m.Layout, err
}

// nodes lists the lab's nodes.
func (f *labFlags) nodes(context.Context) ([]string, error) {
	l, err := f.planned()
	var out []string
	for _, n := range l.Nodes {
		out = append(out, n.Name)
	}
	return out, err
}

// wiresAndNodes lists the lab's wires and nodes.
func (f *labFlags) wiresAndNodes(ctx context.Context) ([]string, error) {
	out, err := f.nodes(ctx)
	if err != nil {
		return nil, err
	}
	l, err := f.planned()
	for _, w := range l.Wires {
		out = append(out, w.Name)
	}
	return out, err
}

// nodesAndPods lists what weft lab exec accepts.
func (f *labFlags) nodesAndPods(ctx context.Context) ([]string, error) {
	d, err := lab.At(f.dir)
	if err != nil {
		return nil, err
	}
	st, err := d.Status(ctx)
	var out []string
	for _, n := range st.Nodes {
		out = append(out, n.Name)
	}
	for _, p := range st.Pods {
		out = append(out, p.Namespace+"/"+p.Name)
	}
	return out, err
}

// vms lists the lab's VMs.
func (f *labFlags) vms(ctx context.Context) ([]string, error) {
	d, err := lab.At(f.dir)
	if err != nil {
		return nil, err
	}
	st, err := d.Status(ctx)
	var out []string
	for _, v := range st.VMs {
		out = append(out, v.Key())
	}
	return out, err
}

// pods lists the pods of the runtime.
func (f *sandboxFlags) pods(ctx context.Context) ([]string, error) {
	pods, err := sandbox.NewClient(f.stateDir).List(ctx)
	var out []string
	for _, p := range pods {
		out = append(out, p.Namespace+"/"+p.Name)
	}
	return out, err
}

// vmNames lists the VMs in a directory.
func vmNames(dir *string) complete.List {
	return func(context.Context) ([]string, error) {
		all, err := launch.ReadAll(absolute(*dir))
		var out []string
		for _, v := range all {
			out = append(out, v.Key())
		}
		return out, err
	}
}
