// SPDX-License-Identifier: Apache-2.0

package standalone_test

import (
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// Without a configured backend the containers' packets pass a node whose iptables drop by default, in either variant
// and whether by policy or by a rule.
func TestFirewallBehindIPTables(t *testing.T) {
	for name, drop := range map[string]string{
		"legacy policy": "iptables-legacy -P FORWARD DROP; ip6tables-legacy -P FORWARD DROP",
		"legacy rule":   "iptables-legacy -A FORWARD -j DROP; ip6tables-legacy -A FORWARD -m comment --comment last -j REJECT",
		"rule":          "iptables-nft -A FORWARD -m comment --comment last -j DROP; ip6tables-nft -A FORWARD -j DROP",
		"reject":        "iptables-nft -A FORWARD -j REJECT; ip6tables-nft -A FORWARD -j REJECT",
		"both kinds": "iptables-nft -P FORWARD DROP; ip6tables-nft -P FORWARD DROP;" +
			"iptables-legacy -P FORWARD DROP; ip6tables-legacy -P FORWARD DROP",
	} {
		t.Run(name, func(t *testing.T) {
			if out, err := nettest.Try(nil, "sh", "-ec", "iptables-legacy -S; ip6tables-legacy -S; iptables-nft -S"); err !=
				nil {
				nettest.SkipMissing(t, "both kinds of iptables: "+out)
			}
			h := newHost(t)
			flushed(t)
			sweepBridges(t)
			clean := `for p in iptables-legacy ip6tables-legacy iptables-nft ip6tables-nft; do $p -P FORWARD ACCEPT; $p -F; done`
			t.Cleanup(func() {
				nettest.Run(t, nil, "sh", "-ec", clean+`
				for p in iptables-legacy ip6tables-legacy; do $p -X; done`)
			})
			nettest.Run(t, nil, "sh", "-ec", drop)
			pods := []*guarded{{name: "a", bridge: "fwbr1"}, {name: "b", bridge: "fwbr2"}}
			for i, g := range pods {
				guard(t, h, func(plugin, verb, conf string, g *guarded) string {
					return h.must(plugin, verb, conf, g.ns, "CNI_CONTAINERID="+g.name).stdout
				}, g, i, "")
			}
			checkMatrix(t, pods, func(_, _ *guarded) bool { return true })
			for _, g := range pods {
				h.must("firewall", "CHECK", g.conf, g.ns, "CNI_CONTAINERID="+g.name)
				h.must("firewall", "DEL", g.conf, g.ns, "CNI_CONTAINERID="+g.name)
			}
			checkMatrix(t, pods, func(_, _ *guarded) bool { return false })
			for _, program := range []string{"iptables-legacy", "ip6tables-legacy", "iptables-nft", "ip6tables-nft"} {
				if out := nettest.Run(t, nil, program, "-S"); strings.Contains(out, "10.1") || strings.Contains(out, "fd00:") {
					t.Errorf("%s after DEL:\n%s", program, out)
				}
			}
			for _, g := range pods {
				h.must("bridge", "DEL", g.bridgeConf, g.ns, "CNI_CONTAINERID="+g.name)
			}
		})
	}
}
