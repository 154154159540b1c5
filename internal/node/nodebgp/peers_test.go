// SPDX-License-Identifier: Apache-2.0

package nodebgp

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/plan/bgp"
)

// A session that is lost is counted and has an event, once; one that was removed is not lost. Routes that are refused have
// an event when they are the first ones.
func TestPeerEvents(t *testing.T) {
	n := &Node{lost: map[netip.Addr]uint64{}, connected: true}
	addr := netip.MustParseAddr("10.9.0.2")
	peer := func(session string, received, accepted uint64) bgp.PeerState {
		return bgp.PeerState{Name: "tor", Addr: addr, ASN: 65001, Session: session, Received: received, Accepted: accepted, Error: "hold timer expired"}
	}
	for _, step := range []struct {
		now  []bgp.PeerState
		want string
	}{
		{[]bgp.PeerState{peer("active", 0, 0)}, ""},
		{[]bgp.PeerState{peer("established", 3, 3)}, ""},
		{[]bgp.PeerState{peer("established", 3, 4)}, ""},
		{[]bgp.PeerState{peer("established", 5, 3)}, "BGPRoutesRefused 2 of 5 routes of peer 10.9.0.2 (tor, AS 65001)"},
		{[]bgp.PeerState{peer("established", 6, 3)}, ""},
		{[]bgp.PeerState{peer("idle", 0, 0)}, "BGPSessionLost session with peer 10.9.0.2 (tor, AS 65001) is lost: hold timer expired"},
		{[]bgp.PeerState{peer("active", 0, 0)}, ""},
		{[]bgp.PeerState{peer("established", 1, 1)}, ""},
		{nil, ""},
	} {
		var got []string
		for _, e := range n.tookPeersLocked(step.now) {
			got = append(got, e.Reason+" "+e.Message)
		}
		if text := strings.Join(got, "\n"); step.want == "" && text != "" || !strings.HasPrefix(text, step.want) {
			t.Errorf("%v: %q, want %q", step.now, text, step.want)
		}
	}
	n.tookPeersLocked([]bgp.PeerState{peer("established", 1, 1)})
	if p := n.Peers(); len(p) != 1 || !p[0].Up || p[0].Lost != 1 {
		t.Errorf("%+v", p)
	}
	n.connected = false // weft-bgp is gone
	if p := n.Peers(); len(p) != 1 || p[0].Up {
		t.Errorf("%+v", p)
	}
}
