// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/state"
)

// Broken is a difference between the kernel and the topology in force.
type Broken struct {
	// Owner is the fragment that requires it.
	Owner string `json:"owner"`
	Want  string `json:"want"`
	Have  string `json:"have,omitempty"`
}

// String returns a readable description.
func (b Broken) String() string {
	if b.Have == "" {
		return b.Want + " is missing"
	}
	return fmt.Sprintf("want %s, have %s", b.Want, b.Have)
}

// Compare compares the kernel in a namespace (nil: the process's own) with a topology. It writes nothing.
func Compare(ctx context.Context, ns *netns.NS, t mesh.Topology) ([]Broken, error) {
	conn, err := kernel.Dial(ns)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	all, owners := state.Fragment{Owner: "mesh"}, map[string]string{}
	for _, f := range t.Fragments() {
		all.Merge(f)
		for _, line := range mesh.Lines(f.Host) {
			owners[line] = f.Owner
		}
	}
	differences, err := kernel.Spaces{Host: conn}.Diff(ctx, all)
	if err != nil {
		return nil, fmt.Errorf("compare with the kernel: %w", err)
	}
	out := []Broken{}
	for _, d := range differences {
		b := Broken{Owner: owners[d.Want], Want: d.Want, Have: d.Have}
		if b.Owner == "" { // tables belong to the node
			b.Owner = mesh.OwnerNode
		}
		out = append(out, b)
	}
	return out, nil
}
