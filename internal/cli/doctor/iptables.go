// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/kernel/iptables"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// legacyIPTables warns when the legacy iptables filter table exists and no program can list it: its rules may drop
// packets, and the plugin firewall does not see them.
func legacyIPTables(ctx context.Context, n Node) []Finding {
	var out []Finding
	for _, v6 := range []bool{false, true} {
		file := "/proc/net/ip_tables_names"
		if v6 {
			file = "/proc/net/ip6_tables_names"
		}
		b, err := os.ReadFile(filepath.Join(n.Root, file))
		switch {
		case os.IsPermission(err):
			return skip("not checked: listing legacy iptables tables needs root: %v", err)
		case err != nil || !slices.Contains(strings.Fields(string(b)), "filter"):
			continue
		}
		reads, err := iptables.New(nil, n.NodeRoot).ReadsLegacy(ctx, v6)
		if err != nil {
			out = append(out, skip("legacy iptables: %v", err)...)
		} else if !reads {
			d := plugin.UnreadLegacy(state.IPTables{IPv6: v6, Table: "filter"}.String())
			out = append(out, warn(d.Hint, "%s", d.Msg)...)
		}
	}
	return out
}
