// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// guardedBridge is a bridge whose ports are guarded, or not.
func guardedBridge(guard string) string {
	return `{"type":"bridge","bridge":"abr0","guard":` + guard +
		`,"ipam":{"type":"host-local","subnet":"10.8.0.0/24","dataDir":"DATA"}}`
}

// TestTablesOfThoseBefore: the last attachment of a network takes the tables that only others had elements in.
func TestTablesOfThoseBefore(t *testing.T) {
	n := newNode(t)
	plain, ns1 := n.pod()
	guarded, ns2 := n.pod()
	one, two := n.job(n.list(guardedBridge("false")), plain, ns1), n.job(n.list(guardedBridge("true")), guarded, ns2)
	n.add(one)
	n.add(two)
	if out := nettest.Run(t, nil, "nft", "list", "ruleset"); !strings.Contains(out, "table bridge") {
		t.Fatalf("no guard: %s", out)
	}
	if err := n.Del(t.Context(), two); err != nil {
		t.Fatal(err)
	}
	n.drain()
	if err := n.Del(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	n.drain()
	if out := nettest.Run(t, nil, "nft", "list", "ruleset"); strings.Contains(out, "table bridge") {
		t.Errorf("left when all are gone: %s", out)
	}
}

// TestEarlierGuard: pods that an earlier version attached keep their elements of the guard's table, in which IPv6
// addresses are a set of ranges, while pods of this version come and go; without them the table goes, too.
func TestEarlierGuard(t *testing.T) {
	n := newNode(t)
	const own6 = `"vethold" . 02:00:00:00:00:01 . fd00:8::2`
	nettest.Run(t, nil, "nft", "add table bridge weft_guard; "+
		"add set bridge weft_guard own6 { type ifname . ether_addr . ipv6_addr; flags interval; }; "+
		"add element bridge weft_guard own6 { "+own6+` comment "weft:net/old/eth0" }; `+
		"add chain bridge weft_guard prerouting { type filter hook prerouting priority -300; }; "+
		"add rule bridge weft_guard prerouting iifname . ether saddr . ip6 saddr @own6 accept")
	come := func() {
		id, ns := n.pod()
		job := n.job(n.list(guardedBridge("true")), id, ns)
		n.add(job)
		if err := n.Check(t.Context(), job); err != nil {
			t.Error(err)
		}
		if err := n.Del(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		n.drain()
	}
	come()
	if out := nettest.Run(t, nil, "nft", "list", "ruleset"); !strings.Contains(out, own6) {
		t.Errorf("the address of a pod from before is gone: %s", out)
	}
	nettest.Run(t, nil, "nft", "flush set bridge weft_guard own6")
	come()
	if out := nettest.Run(t, nil, "nft", "list", "ruleset"); strings.Contains(out, "weft_guard") {
		t.Errorf("left when its last pod is gone: %s", out)
	}
}
