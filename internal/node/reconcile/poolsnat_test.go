// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// TestNATOutgoing: each pool configures whether external hosts see its pods' own addresses. Here external hosts have no
// route to pods, so they can only answer masqueraded ones.
func TestNATOutgoing(t *testing.T) {
	c := newPools(t, model.Encapsulation{Kind: model.EncapsulationNone})
	n1 := c.nodes[0]
	outside := nettest.NS(t, "outside")
	ip(t, n1.node, "link add out0 address "+mac(60)+" type veth peer name eth0 address "+mac(61)+" netns "+outside.Path(),
		"link set out0 up", "addr add 10.1.0.1/24 dev out0", "addr add fd01::1/64 dev out0 nodad")
	ip(t, outside, "link set eth0 up", "addr add 10.1.0.2/24 dev eth0", "addr add fd01::2/64 dev eth0 nodad")
	neigh(t, n1.node, "out0", 61, "10.1.0.2", "fd01::2")
	neigh(t, outside, "eth0", 60, "10.1.0.1", "fd01::1")
	answers := func() int {
		n := 0
		for _, to := range []string{"10.1.0.2", "fd01::2"} {
			if _, err := nettest.Try(n1.pod, "ping", "-n", "-c1", "-W1", to); err == nil {
				n++
			}
		}
		return n
	}
	within(t, soon, "the outside answers", func() bool { return answers() == 2 })
	c.allReach(soon)
	hides := func(name string, nat bool) {
		t.Helper()
		_, err := c.store.Modify(t.Context(), store.AddressPools().Key("", name), func(fields map[string]any) error {
			fields["spec"].(map[string]any)["natOutgoing"] = nat
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	// Another pool that hides its own: the table is there, and not for the first.
	c.put(store.AddressPoolObject(store.Object{}, model.AddressPool{
		Name: "other", AssignmentMode: model.AssignAutomatic, NATOutgoing: true,
		Regions: []model.AddressRegion{{CIDR: netip.MustParsePrefix("10.99.0.0/24"), BlockSize: 28}},
	}))
	hides("p", false)
	within(t, soon, "the outside sees the pod's own address, and has no way back", func() bool { return answers() == 0 })
	if list := nettest.Run(t, n1.node, "nft", "list", "table", "inet", mesh.MasqueradeTable); !strings.Contains(list,
		"10.99.0.0/24") {
		t.Errorf("the other pool: %s", list)
	}
	c.allReach(soon)
	hides("p", true)
	within(t, soon, "hidden again", func() bool { return answers() == 2 })
	hides("p", false)
	hides("other", false)
	within(t, soon, "no table where nothing is hidden", func() bool {
		return !strings.Contains(nettest.Run(t, n1.node, "nft", "list", "tables"), mesh.MasqueradeTable)
	})
}
