// SPDX-License-Identifier: Apache-2.0

package cut

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func wires() Wires {
	return Wires{Names: []string{"wire0", "wire1"}, Nodes: []string{"node1", "node2", "node3"}}
}

func TestParse(t *testing.T) {
	for args, want := range map[string]string{
		"wire0": "[wire0 * -> *]", "wire1 node1": "[wire1 node1 -> * wire1 * -> node1]",
		"wire0 node1 node2":       "[wire0 node1 -> node2 wire0 node2 -> node1]",
		"node1 node2 --one-way":   "[wire0 node1 -> node2 wire1 node1 -> node2]",
		"wire0 node3 --one-way":   "[wire0 node3 -> *]",
		"":                        "no wire and no node is named",
		"wire0 --one-way":         "--one-way needs a node",
		"wire7":                   `wire or node "wire7" not found`,
		"node1 wire0":             `wire or node "wire0" not found`,
		"wire0 node1 node1":       `node "node1" is named twice`,
		"wire0 node1 node2 node3": `node "node3" is one too many`,
	} {
		words := strings.Fields(args)
		one := len(words) > 0 && words[len(words)-1] == "--one-way"
		if one {
			words = words[:len(words)-1]
		}
		l, err := wires().Parse(words, one)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			var names []string
			for _, c := range wires().Cuts(l) {
				names = append(names, c.String())
			}
			got = "[" + strings.Join(names, " ") + "]"
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%q: %s, want %s", args, got, want)
		}
	}
}

// A larger cut replaces those within it, and a part of it cannot be healed.
func TestAddAndRemove(t *testing.T) {
	one, back := Cut{"wire0", "node1", "node2"}, Cut{"wire0", "node2", "node1"}
	whole, other := Cut{Wire: "wire0"}, Cut{"wire1", "node1", "node2"}
	all := Add(Add(nil, other, one), one, back)
	if d := cmp.Diff([]Cut{one, back, other}, all); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]Cut{whole, other}, Add(all, whole)); d != "" {
		t.Error(d)
	}
	if left, err := Remove(all, whole); err != nil || !slices.Equal(left, []Cut{other}) {
		t.Errorf("heal of the wire: %v, %v", left, err)
	}
	if _, err := Remove([]Cut{whole}, one); err == nil || !strings.Contains(err.Error(), "a part of a larger cut: wire0 * -> *") {
		t.Errorf("heal of a part: %v", err)
	}
}
