// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"testing"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// When the kernel has tables of iptables-legacy and the host has no program that reads them, the answer says so; it
// differs from the answers when they drop, and when they can be read and do not.
func TestDroppedByOlderIPTables(t *testing.T) {
	ns := nettest.NS(t, "older")
	for _, program := range []string{"iptables-legacy", "ip6tables-legacy"} {
		if out, err := nettest.Try(ns, program, "-S"); err != nil {
			nettest.SkipMissing(t, program+": "+out)
		}
	}
	c, err := kernel.Dial(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if have, err := c.LegacyTables(false); err != nil || len(have) == 0 {
		nettest.SkipMissing(t, "which tables the older iptables have cannot be read here")
	}
	bare := t.TempDir()
	for _, tc := range []struct {
		name, root, policy string
		want               map[string]state.Answer
	}{
		{"read", "", "ACCEPT", map[string]state.Answer{"4": {}, "6": {}}},
		{"dropping", "", "DROP", map[string]state.Answer{
			"4": {Found: true, Value: "iptables table filter chain FORWARD"},
			"6": {Found: true, Value: "ip6tables table filter chain FORWARD"},
		}},
		{
			"unread", bare, "DROP", map[string]state.Answer{
				"4": {Value: "iptables table filter"}, "6": {Value: "ip6tables table filter"},
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, program := range []string{"iptables-legacy", "ip6tables-legacy"} {
				nettest.Run(t, ns, program, "-P", "FORWARD", tc.policy)
			}
			c.Root = tc.root
			for family, want := range tc.want {
				q := state.Query{Space: state.Host, ForwardDrop: state.LegacyForwardDrop + family}
				got, err := kernel.Spaces{Host: c}.Observe(t.Context(), []state.Query{q})
				if err != nil || got[q].Found != want.Found || got[q].Value != want.Value {
					t.Errorf("family %s: %+v %v, want %+v", family, got[q], err, want)
				}
			}
		})
	}
}
