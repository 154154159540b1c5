// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// noVMs is a registry without VMs, which counts the questions: each look at an attachment is one.
type noVMs struct{ asked atomic.Int64 }

func (n *noVMs) Has(string) bool { n.asked.Add(1); return false }

func (*noVMs) Compose(_ model.AttachmentKey, f state.Fragment) state.Fragment { return f }
func (*noVMs) Records() ([]attach.Record, error)                              { return nil, nil }
func (*noVMs) Open(attach.Record) *netns.NS                                   { return nil }
func (*noVMs) Forget(context.Context, attach.Record) error                    { return nil }

func (*noVMs) Undo(context.Context, attach.Record, *netns.NS, func(attach.Act) bool) error {
	return nil
}

// restless are what a program on the node may do without end next to an attachment: with objects of its own, on the
// node's end and with the pod's address.
func restless(design string) []drift {
	both := []drift{
		{name: "a queueing discipline", node: "tc qdisc add dev HOST clsact; tc qdisc del dev HOST clsact"},
		{name: "a setting", node: "sysctl -qw net/ipv4/conf/HOST/ignore_routes_with_linkdown=1; " +
			"sysctl -qw net/ipv4/conf/HOST/ignore_routes_with_linkdown=0"},
	}
	if design == "bridge" {
		return append(both, drift{
			name: "an address", node: "ip addr add 192.0.2.9/32 dev HOST; ip addr del 192.0.2.9/32 dev HOST",
		})
	}
	return append(both, []drift{
		{name: "a route", node: "ip route add POD4/32 dev HOST table 77; ip route del POD4/32 dev HOST table 77"},
		{name: "a neighbor", node: "ip neigh add POD4 lladdr 02:00:00:00:00:07 dev up0 nud permanent; ip neigh del POD4 dev up0"},
	}...)
}

// TestRestlessNode: a program on the node that changes things of its own next to an attachment without end is noticed
// the less often the longer it does so, and delays no repair of the attachment.
func TestRestlessNode(t *testing.T) {
	for design, drifts := range map[string][]drift{
		"routed": {
			{name: "route of the pod", node: "ip route del POD4/32"},
			{name: "route replaced", node: "ip route replace POD4/32 dev lo proto 119"},
			{name: "IPv6 route", node: "ip -6 route del POD6/128"},
			{name: "neighbor deleted", node: "ip neigh del POD4 dev HOST"},
			{name: "neighbor overwritten", node: "ip neigh replace POD4 lladdr 02:00:00:00:00:09 dev HOST nud permanent"},
			{name: "shaper", node: "tc qdisc del dev HOST root"},
			{name: "proxy_arp", node: "sysctl -qw net/ipv4/conf/HOST/proxy_arp=0"},
			{name: "forwarding of IPv6", node: "sysctl -qw net/ipv6/conf/all/forwarding=0"},
			{name: "node's end down", node: "ip link set HOST down"},
		},
		"bridge": {
			{name: "port off the bridge", node: "ip link set HOST nomaster"},
			{name: "gateway address", node: "ip addr del 10.8.0.1/24 dev abr0"},
			{name: "IPv6 gateway address", node: "ip addr del fd00:8::1/64 dev abr0"},
			{name: "forwarding", node: "sysctl -qw net/ipv4/ip_forward=0"},
		},
	} {
		t.Run(design, func(t *testing.T) {
			vms := &noVMs{}
			n, _, job, do := newKindNode(t, design, kindChains()[design], func(c *attach.Config) { c.VMs = vms })
			nettest.IP(t, nil, "link add up0 type veth peer name up1")
			nettest.IP(t, nil, "link set up0 up")
			t.Cleanup(func() { nettest.IP(t, nil, "link del up0") })
			n.reconcilePolling(t)
			for _, d := range drifts {
				for range 12 { // the time between two looks doubles, up to half a minute
					before := vms.asked.Load()
					for _, program := range restless(design) {
						do(kindDrift{drift: program})
					}
					for limit := time.Now().Add(30 * time.Second); vms.asked.Load() == before; time.Sleep(5 * time.Millisecond) {
						if n.ahead.Add(int64(time.Second)); time.Now().After(limit) {
							t.Fatal("what changes next to the attachment is never looked at")
						}
					}
				}
				do(kindDrift{drift: d})
				n.wholeWithin(t, time.Minute, d.name+", next to a restless program", job)
			}
		})
	}
}
