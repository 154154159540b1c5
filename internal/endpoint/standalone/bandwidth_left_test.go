// SPDX-License-Identifier: Apache-2.0

package standalone_test

import (
	"os"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// TestBandwidthOfTheReference removes what the reference bandwidth created: by DEL, also without the container, and by
// GC when the container's interface is deleted.
func TestBandwidthOfTheReference(t *testing.T) {
	bin := os.Getenv("WEFT_PEER_BIN_DIR")
	if bin == "" {
		nettest.SkipMissing(t, "WEFT_PEER_BIN_DIR is not set: nothing of the reference bandwidth is taken over")
	}
	nettest.Need(t, "ifb")
	ifbs := func() int {
		return strings.Count(nettest.Run(t, nil, "ip", "-br", "link", "show", "type", "ifb"), "bwp")
	}
	for _, how := range []string{"DEL", "DEL without the container", "GC"} {
		t.Run(how, func(t *testing.T) {
			h := newHost(t)
			ns, other := nettest.NS(t, "c1"), nettest.NS(t, "c2")
			prev := h.must("ptp", "ADD", conf("1.0.0", "ptp", routed), ns).stdout
			shaped := with(prev, conf("1.1.0", "bandwidth", ","+shaping))
			h.peer(bin, "bandwidth", "ADD", strings.Replace(shaped, "1.1.0", "1.0.0", 1), ns)
			kept := h.must("ptp", "ADD", conf("1.0.0", "ptp", routed), other, "CNI_CONTAINERID=c2").stdout
			h.peerOf(bin, "bandwidth", "ADD", with(kept, conf("1.0.0", "bandwidth", ","+shaping)), other, "c2")
			if ifbs() != 2 {
				t.Fatal("the reference made no ifb")
			}
			switch how {
			case "DEL":
				h.must("bandwidth", "DEL", shaped, ns)
			case "DEL without the container":
				h.must("bandwidth", "DEL", conf("1.1.0", "bandwidth", ","+shaping), nil)
			case "GC":
				// Of another network: the name of an ifb does not say of which it is.
				other := strings.Replace(conf("1.1.0", "bandwidth", ""), `"name":"n"`,
					`"name":"m","cni.dev/valid-attachments":[]`, 1)
				collect := func() { h.must("bandwidth", "GC", other, nil) }
				collect()
				if ifbs() != 2 {
					t.Error("GC took an ifb that is in use")
				}
				h.must("ptp", "DEL", conf("1.0.0", "ptp", routed), ns)
				collect()
			}
			if n := ifbs(); n != 1 {
				t.Errorf("%d ifb are left, want the other container's alone", n)
			}
			h.must("bandwidth", "DEL", shaped, ns)
			h.must("bandwidth", "DEL", shaped, other, "CNI_CONTAINERID=c2")
			h.must("ptp", "DEL", conf("1.0.0", "ptp", routed), ns)
			h.must("ptp", "DEL", conf("1.0.0", "ptp", routed), other, "CNI_CONTAINERID=c2")
			if ifbs() != 0 {
				t.Error("an ifb is left")
			}
		})
	}
}
