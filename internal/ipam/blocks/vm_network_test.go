// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

// TestVMOnNetwork: on an additional network, a VM's address stays with it as in the cluster's, by an IPAMClaim that the
// pod names or, without one, by a claim that weft creates; a second pod is on standby while it migrates.
func TestVMOnNetwork(t *testing.T) {
	for _, claimed := range []bool{true, false} {
		name, conf, args := "promise",
			`{"cniVersion":"1.0.0","name":"net","ipam":{"type":"whereabouts","range":"10.0.0.0/27","gateway":"10.0.0.30"}}`,
			[][2]string(nil)
		if claimed {
			name, conf, args = "IPAMClaim", claimConf("vm"), [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "shop"}}
		}
		t.Run(name, func(t *testing.T) {
			_, path := cluster(t, map[string]string{
				"pool.yaml": poolOf30, "claim.yaml": claimObject, "vm.yaml": vmManifest("db", "u1"),
			})
			now := time.Unix(1e9, 0)
			calm := func(c *Config) {
				c.Now = func() time.Time { return now }
				c.After = func(time.Duration) <-chan time.Time { ch := make(chan time.Time, 1); ch <- now; return ch }
			}
			a, b := join(t, path, "a", calm), join(t, path, "b", calm)
			req := func(n *node, id string) ipam.Request {
				req := n.vmRequest("db", id, conf)
				req.Args = args
				return req
			}
			add := func(n *node, id string, incoming bool) (string, bool) {
				t.Helper()
				q := req(n, id)
				q.Incoming = incoming
				h, err := n.engine.Allocators()[1].(ipam.Reserver).Reserve(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				_ = h.Commit()
				addr := h.Result().IPs[0].Address
				standby := h.Standby()
				if !standby {
					n.ledger[key(id)], n.confs[key(id)] = []netip.Addr{addr.Addr()}, conf
				}
				return addr.String(), standby
			}
			first, _ := add(a, "one", false)
			a.del("one")
			now = now.Add(time.Hour)
			if again, standby := add(a, "two", false); again != first || standby {
				t.Errorf("again: %s %t, before %s", again, standby, first)
			}
			target, standby := add(b, "target", true)
			if target != first || !standby {
				t.Fatalf("the target: %s %t, the source has %s", target, standby, first)
			}
			prev := model.Result{IPs: []model.IP{{Address: netip.MustParsePrefix(first)}}}
			check := req(b, "target")
			check.Standby = true
			if err := b.engine.Allocators()[1].Check(t.Context(), check, prev); err != nil {
				t.Errorf("CHECK of what stands by: %v", err)
			}
			take := req(b, "target")
			take.Held = []netip.Addr{prev.IPs[0].Address.Addr()}
			if err := b.engine.Allocators()[1].(ipam.Transferrer).Transfer(context.Background(), take); err != nil {
				t.Fatal(err)
			}
			a.engine.freshenAll(t)
			if a.engine.Holds(take.Held[0]) || !b.engine.Holds(take.Held[0]) {
				t.Error("both nodes have it, or none")
			}
			a.del("two")
			if got := a.mustAdd(rangeConf1("10.0.0.0/27"), "other"); got == "["+take.Held[0].String()+"]" {
				t.Error("somebody else gets it")
			}
			claims, err := a.line.List(t.Context(), store.AddressClaims())
			if err != nil || len(claims) == 0 == !claimed {
				t.Errorf("%d claims of the machine, error %v", len(claims), err)
			}
		})
	}
}
