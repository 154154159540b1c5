// SPDX-License-Identifier: Apache-2.0

package flannel_test

import (
	"encoding/json"
	"flag"
	"net/netip"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/flannel"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestRules: all rules of both families and both forms, as text. That they are flannel's own is seen in test/flannel.
func TestRules(t *testing.T) {
	p := netip.MustParsePrefix
	r := flannel.Rules{
		Networks:   []netip.Prefix{p("10.5.0.0/16"), p("fc00:5::/48")},
		Subnets:    []netip.Prefix{p("10.5.3.0/24"), p("fc00:5:0:3::/64")},
		Masquerade: true, Random: true, Forward: true, Except: []netip.Prefix{p("10.99.0.0/16"), p("fd99::/64")},
	}
	got, err := json.MarshalIndent(map[string]any{"iptables": r.IPTables(), "nft": r.NFTables()}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/rules.json"
	if *update {
		if err := os.WriteFile(golden, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)+"\n"); d != "" {
		t.Error(d)
	}
	r.Masquerade, r.Forward = false, false
	if len(r.IPTables())+len(r.NFTables()) > 0 {
		t.Error("rules, and none is wanted")
	}
}
