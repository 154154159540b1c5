// SPDX-License-Identifier: Apache-2.0

package oracletest_test

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/plan/policy/naive"
)

// TestWhy: the result of `weft policy why` for a connection between pods, or with an outside host, is that of the
// reference evaluator, on every node.
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
				rt.Fatalf("%s: %v", describePacket(w, p), err)
			}
			for _, a := range answers {
				if a.Flow.Src == p.Src && a.Flow.Dst == p.Dst && a.Allowed != w.Allowed(p) {
					rt.Fatalf("%s: why says %t, the specification %t\n%+v\n%s", describePacket(w, p), a.Allowed,
						w.Allowed(p), a, describe(w))
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

// partyOf returns a pod's name if a pod has the address.
func partyOf(w naive.World, a netip.Addr) policy.ConnectionEnd {
	if p := of(w, a); p != nil {
		return policy.ConnectionEnd{Pod: refOf(p)}
	}
	return policy.ConnectionEnd{Addr: a}
}
