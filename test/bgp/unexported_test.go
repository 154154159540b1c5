// SPDX-License-Identifier: Apache-2.0

package bgp_test

import (
	"fmt"
	"testing"
)

// A prefix within a pool with disableBGPExport is not announced; it is without, and is withdrawn when the pool has it again.
func TestDisableBGPExport(t *testing.T) {
	n := newNode(t, "n1")
	tor := router(t, n)
	n.put("node.yaml", nodeManifest("n1", "", []string{"10.244.1.0/24"}, []string{"10.9.0.1"}))
	n.put("peer.yaml", peerTor)
	pool := func(disable bool) {
		n.put("pool.yaml", fmt.Sprintf(`apiVersion: weft.dev/v1alpha1
kind: AddressPool
metadata: {name: private}
spec: {assignmentMode: Manual, disableBGPExport: %t, regions: [{cidr: 10.244.0.0/16}]}
`, disable))
	}
	pool(true)
	b := startBird(t, tor, birdToN1)
	n.startSpeaker()
	n.startAgent("")
	n.learns("203.0.113.0/24", "10.9.0.2")
	n.established()
	b.hears("10.244.1.0/24", "via 10.9.0.1", false)
	if s := n.status(); len(s.Announced) > 0 {
		t.Errorf("announced %v", s.Announced)
	}
	pool(false)
	b.hears("10.244.1.0/24", "via 10.9.0.1", true)
	pool(true)
	b.hears("10.244.1.0/24", "via 10.9.0.1", false)
}
