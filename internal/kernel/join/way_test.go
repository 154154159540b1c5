// SPDX-License-Identifier: Apache-2.0

package join

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/state"
)

// TestForwardTable: a guest's requests to its node are accepted before all else is forwarded to the link, and arriving
// frames go to the tap.
func TestForwardTable(t *testing.T) {
	w := Way{
		Join: state.Join{
			Tap:        "tap0",
			Link:       "eth0",
			LocalAddrs: []netip.Addr{netip.MustParseAddr("169.254.1.1"), netip.MustParseAddr("fe80::1")},
			DHCP4:      true,
			RS:         true,
		},
		Tap: link.Found{Index: 7}, Link: link.Found{Index: 9},
	}
	table := w.table()
	text := map[string]string{}
	for _, c := range table.Chains {
		var rules []string
		for _, r := range c.Rules {
			rules = append(rules, r.Text)
		}
		text[c.Device] = strings.Join(rules, "\n")
	}
	if text["eth0"] != "fwd to 7" {
		t.Errorf("what arrives at the link: %s", text["eth0"])
	}
	guest := text["tap0"]
	for _, taken := range []string{
		"arp daddr ip 169.254.1.1 accept", "icmpv6 taddr fe80::1 accept", "255.255.255.255 udp dport 67 accept",
		"icmpv6 type 133 accept",
	} {
		if !strings.Contains(guest, taken) {
			t.Errorf("the guest's packets: %q is not taken by\n%s", taken, guest)
		}
	}
	if !strings.HasSuffix(guest, "fwd to 9") || strings.Contains(guest, "ff02::/16") {
		t.Errorf("the rest goes to the link, DHCPv6 was not asked for:\n%s", guest)
	}
}
