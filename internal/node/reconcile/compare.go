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

// Broken is one thing in which the kernel differs from what is in force.
type Broken struct {
	// Owner is the fragment that wants it.
	Owner string `json:"owner"`
	Want  string `json:"want"`
	Have  string `json:"have,omitempty"`
}

// String is for people.
func (b Broken) String() string {
	if b.Have == "" {
		return b.Want + " is missing"
	}
	return fmt.Sprintf("want %s, have %s", b.Want, b.Have)
}

// Compare asks the kernel of a namespace (nil: the process's own) what differs from a topology. It writes nothing.
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
		if b.Owner == "" { // tables are the node's
			b.Owner = mesh.OwnerNode
		}
		out = append(out, b)
	}
	return out, nil
}
