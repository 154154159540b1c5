// SPDX-License-Identifier: Apache-2.0

package standalone_test

import (
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// TestCheckOfPortsWithoutRecord: CHECK detects flushed mappings, independent of the plugin and the backend that created
// them.
func TestCheckOfPortsWithoutRecord(t *testing.T) {
	bin := peerBin(t)
	for name, tt := range map[string]struct {
		options string
		ours    bool
		flush   []string // instead of the whole ruleset
	}{
		"reference": {}, "reference nftables": {options: `,"backend":"nftables"`},
		"reference nftables, chain": {
			options: `,"backend":"nftables"`, flush: []string{"chain", "ip", "cni_hostport", "hostports"},
		},
		"reference nftables, masquerading": {
			options: `,"backend":"nftables"`, flush: []string{"chain", "ip", "cni_hostport", "masquerading"},
		},
		"reference nftables, table": {options: `,"backend":"nftables"`, flush: []string{"table", "ip", "cni_hostport"}},
		"reference iptables":        {options: `,"backend":"iptables"`},
		"weft":                      {ours: true}, "weft iptables": {options: `,"backend":"iptables"`, ours: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			flushed(t)
			ns := nettest.NS(t, "c1")
			main := mainPlugins()["bridge"]
			prev := h.must("bridge", "ADD", main, ns).stdout
			defer h.must("bridge", "DEL", main, ns)
			ports := mapped(prev, tt.options,
				`{"hostPort":8080,"containerPort":80,"protocol":"tcp"},{"hostPort":5353,"containerPort":53,"protocol":"udp"}`)
			other := &host{t: t, journal: t.TempDir(), data: h.data, bin: h.bin}
			if tt.ours {
				other.must("portmap", "ADD", ports, ns)
			} else {
				h.peer(bin, "portmap", "ADD", ports, ns)
			}
			h.must("portmap", "CHECK", ports, ns)
			if tt.flush == nil {
				tt.flush = []string{"ruleset"}
			}
			nettest.Run(t, nil, append([]string{"nft", "flush"}, tt.flush...)...)
			if a := h.call("portmap", "CHECK", ports, ns); a.code() != 102 {
				t.Errorf("CHECK of flushed mappings: %+v", a)
			}
			other.must("portmap", "DEL", ports, ns)
		})
	}
}

// TestCheckOfVRFWithoutRecord: CHECK detects that the interface is no longer in its VRF.
func TestCheckOfVRFWithoutRecord(t *testing.T) {
	nettest.Need(t, "vrf")
	h := newHost(t)
	ns := quickNS(t)
	prev := h.must("bridge", "ADD", conf("1.1.0", "bridge", vrfNet), ns).stdout
	c := withPrev(conf("1.1.0", "vrf", `,"vrfname":"blue","table":100`), prev)
	other := &host{t: t, journal: t.TempDir(), data: h.data, bin: h.bin}
	other.must("vrf", "ADD", c, ns)
	h.must("vrf", "CHECK", c, ns)
	nettest.Run(t, ns, "ip", "link", "set", "eth0", "nomaster")
	if a := h.call("vrf", "CHECK", c, ns); a.code() != 102 {
		t.Errorf("CHECK outside of the VRF: %+v", a)
	}
	other.must("vrf", "DEL", c, ns)
	h.must("bridge", "DEL", conf("1.1.0", "bridge", vrfNet), ns)
}
