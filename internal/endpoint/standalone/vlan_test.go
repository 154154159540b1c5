// SPDX-License-Identifier: Apache-2.0

package standalone_test

import (
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// TestVLANSharedWithTheReference: containers of one VLAN, created by both programs, reach each other and the gateway,
// whose link either program created; each one's DEL removes the other's.
func TestVLANSharedWithTheReference(t *testing.T) {
	bin := peerBin(t)
	if out, err := nettest.Try(nettest.NS(t, "probe"), "ip", "link", "add", "br0", "type", "bridge", "vlan_filtering",
		"1"); err != nil {
		nettest.Skip(t, "this kernel has no bridge VLAN filtering: "+strings.TrimSpace(out))
	}
	for _, peerFirst := range []bool{true, false} {
		h := newHost(t)
		c := conf("1.0.0", "bridge", `,"vlan":100`+bridged)
		first, second := nettest.NS(t, "first"), nettest.NS(t, "second")
		var results [2]string
		if peerFirst {
			results[0] = h.peerOf(bin, "bridge", "ADD", c, first, "first")
			results[1] = h.must("bridge", "ADD", c, second, "CNI_CONTAINERID=second").stdout
		} else {
			results[0] = h.must("bridge", "ADD", c, first, "CNI_CONTAINERID=first").stdout
			results[1] = h.peerOf(bin, "bridge", "ADD", c, second, "second")
		}
		for i, ns := range []string{"10.6.0.3", "10.6.0.1"} {
			if out, err := nettest.Try(first, "ping", "-c1", patience[true], ns); err != nil {
				t.Errorf("peer first %v: ping %d: %s", peerFirst, i, out)
			}
		}
		for i, id := range []string{"first", "second"} {
			ns := first
			if i == 1 {
				ns = second
			}
			if !strings.Contains(results[i], `"sbr0.100"`) {
				t.Errorf("%s: no gateway in %s", id, results[i])
			}
			prev := strings.Replace(c, "{", `{"prevResult":`+results[i]+`,`, 1)
			h.must("bridge", "CHECK", prev, ns, "CNI_CONTAINERID="+id)
			h.peerOf(bin, "bridge", "CHECK", prev, ns, id)
			if peerFirst == (i == 0) {
				h.must("bridge", "DEL", prev, ns, "CNI_CONTAINERID="+id)
			} else {
				h.peerOf(bin, "bridge", "DEL", prev, ns, id)
			}
		}
		if left := nettest.Run(t, nil, "bridge", "-j", "vlan", "show"); strings.Count(left, `"ifname"`) > 2 {
			// the bridge, the gateway's port
			t.Errorf("ports left: %s", left)
		}
		nettest.Run(t, nil, "ip", "link", "del", "sbr0.100")
	}
}
