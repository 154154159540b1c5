// SPDX-License-Identifier: Apache-2.0

package truth_test

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/plan/policy/naive"
)

// TestWhy: what `weft policy why` tells of a connection between pods, or with the world outside, is what the
// specification says, asked on whichever node.
func TestWhy(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := draw{T: rt}
		w := d.world(6, 6, 4)
		x := policy.New(policy.Config{Node: d.one("node", nodes()...)})
		learn(x, w)
		all := rapid.Permutation(packets(w)).Draw(rt, "order")
		for _, p := range all[:min(len(all), 60)] {
			if of(w, p.Src) == nil && of(w, p.Dst) == nil || isNode(p.Src) || isNode(p.Dst) {
				continue
			}
			q := policy.Query{
				From: partyOf(w, p.Src), To: partyOf(w, p.Dst), Protocol: model.Protocol(p.Proto), Port: uint16(p.Port),
			}
			if p.Proto == "ICMP" {
				q.Protocol = ""
			}
			if onSecond(p.Src) {
				q.Network = second
			}
			answers, err := x.Why(q)
			if err != nil {
				rt.Fatalf("%s: %v", say(w, p), err)
			}
			for _, a := range answers {
				if a.Flow.Src == p.Src && a.Flow.Dst == p.Dst && a.Allowed != w.Allowed(p) {
					rt.Fatalf("%s: why says %t, the specification %t\n%+v\n%s", say(w, p), a.Allowed, w.Allowed(p), a, describe(w))
				}
			}
		}
	})
}

func isNode(a netip.Addr) bool {
	for _, n := range nodes() {
		for _, at := range nodeAddrs(n) {
			if a == at {
				return true
			}
		}
	}
	return false
}

// partyOf names a pod by its name where one has the address.
func partyOf(w naive.World, a netip.Addr) policy.Party {
	if p := of(w, a); p != nil {
		return policy.Party{Pod: refOf(p)}
	}
	return policy.Party{Addr: a}
}
