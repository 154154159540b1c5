// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/kernel/nft/lang"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// TestMaskedConcatenation: all parts of a concatenation except the first may have a mask, and the kernel's state equals
// the plan's.
func TestMaskedConcatenation(t *testing.T) {
	const four, six = "ip saddr . @th,336,32 & 255.255.255.0 @pairs4 accept",
		"ip6 saddr . @th,304,128 & ffff:ffff:ffff:: @pairs6 accept"
	table := state.Table{
		Family: "inet", Name: "weft-masked",
		Sets: []state.Set{
			{Name: "pairs4", Key: "ipv4_addr . ipv4_addr", Elements: []state.Element{{Key: []string{"192.0.2.1", "10.0.1.0"}}}},
			{Name: "pairs6", Key: "ipv6_addr . ipv6_addr", Elements: []state.Element{{Key: []string{"fd00::1", "fd00:1:2::"}}}},
		},
		Chains: []state.Chain{{Name: "input", Type: "filter", Hook: "input", Policy: "accept", Rules: []state.NftRule{
			{Text: four},
			{Text: six},
			{Text: "@th,96,8 != 0 accept"},
			{Text: "@th,104,16 != 1 accept"},
			{Text: "icmpv6 type 133-137 ip6 hoplimit != 255 counter drop"},
		}}},
	}
	text, err := lang.Text(table)
	if err != nil || !strings.Contains(text, four) || !strings.Contains(text, six) {
		t.Fatalf("%v\n%s", err, text)
	}
	ns := nettest.NS(t, "n")
	c := dial(t, ns)
	apply(t, c, table)
	before := gen(t, ns)
	apply(t, dial(t, ns), table)
	if now := gen(t, ns); now != before {
		t.Errorf("a second Apply wrote something:\n%s", list(t, ns, table))
	}
	for _, bad := range []string{
		"ip saddr & 255.0.0.0 . @th,336,32 @pairs4 accept", "ip saddr . @th,336,32 & 1 @pairs4 accept",
	} {
		table.Chains[0].Rules = []state.NftRule{{Text: bad}}
		if _, err := lang.Text(table); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
