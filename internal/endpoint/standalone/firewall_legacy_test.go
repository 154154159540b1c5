// SPDX-License-Identifier: Apache-2.0

package standalone_test

import (
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// A DEL of a container without a record removes the reference plugin's rules from both variants of iptables, in both
// families, and no rule of another container.
func TestFirewallDelOfBothKinds(t *testing.T) {
	programs := []string{"iptables-legacy", "iptables-nft", "ip6tables-legacy", "ip6tables-nft"}
	for _, p := range programs {
		if out, err := nettest.Try(nil, p, "-S"); err != nil {
			nettest.SkipMissing(t, "both kinds of iptables: "+out)
		}
	}
	h := newHost(t)
	flushed(t)
	t.Cleanup(func() {
		nettest.Run(t, nil, "sh", "-ec", "for p in iptables-legacy ip6tables-legacy; do $p -F; $p -X; done")
	})
	nettest.Run(t, nil, "sh", "-ec", `
		for p in iptables-legacy iptables-nft ip6tables-legacy ip6tables-nft; do
			case $p in ip6*) mine=fd07::5/128 other=fd07::6/128 ;; *) mine=10.7.0.5/32 other=10.7.0.6/32 ;; esac
			$p -N CNI-FORWARD
			for a in $mine $other; do
				$p -A CNI-FORWARD -d $a -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
				$p -A CNI-FORWARD -s $a -j ACCEPT
			done
		done`)
	conf := strings.Replace(conf("1.0.0", "firewall", ""), "{",
		`{"prevResult":{"cniVersion":"1.0.0","ips":[{"address":"10.7.0.5/24"},{"address":"fd07::5/64"}]},`, 1)
	h.must("firewall", "DEL", conf, nil, "CNI_CONTAINERID=of-the-reference")
	for _, p := range programs {
		out := nettest.Run(t, nil, p, "-S")
		if strings.Contains(out, "10.7.0.5") || strings.Contains(out, "fd07::5") {
			t.Errorf("%s after DEL:\n%s", p, out)
		}
		if !strings.Contains(out, "10.7.0.6") && !strings.Contains(out, "fd07::6") {
			t.Errorf("%s after DEL lacks the other container's rules:\n%s", p, out)
		}
	}
}
