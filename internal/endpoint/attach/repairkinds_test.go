// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
)

// kindDrift is a drift, the kind of thing that it takes away, and whether the kernel reports it.
type kindDrift struct {
	drift
	kind  string
	quiet bool
}

const shaper = `{"type":"bandwidth","ingressRate":80000000,"ingressBurst":8000000,"egressRate":80000000,"egressBurst":8000000}`

// kindChains are networks of two families with everything that an attachment can have on the node.
func kindChains() map[string]string {
	return map[string]string{
		"routed": strings.Replace(calico, `"mtu":1400`, `"mtu":1400,"policy_setup_timeout_seconds":0`, 1) + "," + shaper,
		"bridge": `{"type":"bridge","bridge":"abr0","isDefaultGateway":true,"ipMasq":true,"capabilities":{"portMappings":true},"ipam":{"type":"host-local","dataDir":"DATA",
			"ranges":[[{"subnet":"10.8.0.0/24"}],[{"subnet":"fd00:8::/64"}]]}},{"type":"tuning","sysctl":{"net.ipv4.conf.eth0.arp_filter":"1"}},` + shaper,
	}
}

func kindDrifts(design string) []kindDrift {
	both := []kindDrift{
		{drift: drift{name: "IPv6 address in the pod", pod: "ip addr del POD6/PLEN6 dev eth0"}, kind: "addr"},
		{drift: drift{name: "IPv6 default route in the pod", pod: "ip -6 route del default"}, kind: "route"},
		{drift: drift{name: "shaper in the pod", pod: "tc qdisc del dev eth0 root"}, kind: "qdisc"},
		{drift: drift{name: "shaper of the node's end", node: "tc qdisc del dev HOST root"}, kind: "qdisc"},
	}
	if design == "routed" {
		return append(both,
			kindDrift{drift: drift{name: "IPv6 route on the node", node: "ip -6 route del POD6/128"}, kind: "route"},
			kindDrift{drift: drift{name: "IPv6 neighbor on the node", node: "ip neigh del POD6 dev HOST"}, kind: "neigh"},
			kindDrift{
				drift: drift{name: "IPv6 gateway in the pod", pod: "ip neigh del fe80::ecee:eeff:feee:eeee dev eth0"},
				kind:  "neigh",
			},
			kindDrift{
				drift: drift{name: "a reported setting of the node's end", node: "sysctl -qw net/ipv4/conf/HOST/proxy_arp=0"},
				kind:  "sysctl",
			},
			kindDrift{
				drift: drift{name: "a setting of the node's end", node: "sysctl -qw net/ipv4/conf/HOST/route_localnet=0"},
				kind:  "sysctl", quiet: true,
			},
			kindDrift{
				drift: drift{name: "elements of the IPv6 source guard", node: "nft flush set inet weft_source own6"}, kind: "nft",
			},
			kindDrift{drift: drift{name: "the source guard's table", node: "nft delete table inet weft_source"}, kind: "nft"},
		)
	}
	return append(both,
		kindDrift{drift: drift{name: "IPv6 gateway address", node: "ip addr del fd00:8::1/64 dev abr0"}, kind: "addr"},
		kindDrift{drift: drift{name: "masquerade of IPv6", node: "nft flush set inet weft masq6"}, kind: "nft"},
		kindDrift{drift: drift{name: "forwarding of the node", node: "sysctl -qw net/ipv4/ip_forward=0"}, kind: "sysctl"},
		kindDrift{
			drift: drift{name: "a setting in the pod", pod: "sysctl -qw net/ipv4/conf/eth0/arp_filter=0"},
			kind:  "sysctl", quiet: true,
		},
	)
}

// counted are the kinds of what was put back.
type counted struct {
	mu    sync.Mutex
	kinds map[string]int
}

func (c *counted) note(things []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, thing := range things {
		kind, _, _ := strings.Cut(strings.TrimPrefix(thing, "no "), " ")
		c.kinds[kind]++
	}
}

// take gives the kinds since the last take.
func (c *counted) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for kind := range c.kinds {
		out = append(out, kind)
	}
	c.kinds = map[string]int{}
	slices.Sort(out)
	return out
}

// TestRepairKinds: each kind of thing that an attachment has, in both families, is put back when it is looked at,
// counted under its kind, and put back by the kernel's event where there is one; what the kernel does not report, by
// the pass.
func TestRepairKinds(t *testing.T) {
	for design, chain := range kindChains() {
		t.Run(design, func(t *testing.T) {
			n, c, job, do := newKindNode(t, design, chain)
			for _, d := range kindDrifts(design) {
				do(d)
				if err := n.Check(t.Context(), job); err == nil {
					t.Errorf("%s: CHECK sees no difference", d.name)
				}
				c.take()
				if repaired, err := n.Repair(t.Context(), job.Request.Key()); err != nil || !repaired {
					t.Errorf("%s: repaired %v: %v", d.name, repaired, err)
				}
				if err := n.Check(t.Context(), job); err != nil {
					t.Errorf("%s: after the repair: %v", d.name, err)
				}
				if kinds := c.take(); !slices.Contains(kinds, d.kind) {
					t.Errorf("%s: counted as %v, want %s", d.name, kinds, d.kind)
				}
				if repaired, err := n.Repair(t.Context(), job.Request.Key()); err != nil || repaired {
					t.Errorf("%s: a second look repaired %v: %v", d.name, repaired, err)
				}
				n.pass()
			}
			n.reconcile(t)
			for _, d := range kindDrifts(design) {
				n.pass()
				if d.quiet {
					continue
				}
				do(d)
				n.whole(t, d.name, job)
			}
			if err := n.Del(t.Context(), job); err != nil {
				t.Error(err)
			}
		})
	}
}

// newKindNode attaches a pod, and gives what takes things from it.
func newKindNode(t *testing.T, design, chain string) (*repairNode, *counted, attach.Job, func(kindDrift)) {
	t.Helper()
	n := newRepairNode(t, design == "routed")
	c := &counted{kinds: map[string]int{}}
	n.cfg.Repaired = c.note
	n.Attacher = attach.New(n.cfg)
	job := n.podJob(chain, "web-0")
	result := n.add(job)
	job.Prev = &result
	host := result.Interfaces[0].Name
	if design == "bridge" {
		host = result.Interfaces[1].Name
	}
	v4, v6 := result.IPs[0].Address, result.IPs[1].Address
	return n, c, job, func(d kindDrift) {
		t.Helper()
		words := strings.NewReplacer("POD6/PLEN6", v6.String(), "POD6", v6.Addr().String())
		d.node, d.pod = words.Replace(d.node), words.Replace(d.pod)
		d.apply(t, host, v4.Addr().String(), job.Netns)
	}
}

// TestRepairByPass: what the kernel does not report stays until the pass over all attachments comes by, and is put back
// then.
func TestRepairByPass(t *testing.T) {
	for design, chain := range kindChains() {
		t.Run(design, func(t *testing.T) {
			n, _, job, do := newKindNode(t, design, chain)
			ctx, cancel := context.WithCancel(t.Context())
			done, idle := make(chan struct{}), make(chan struct{}, 1)
			after := func(wait time.Duration) <-chan time.Time {
				// time is what the test says it is; it may look as often as it likes
				if wait > time.Second { // nothing is due because of what was heard
					select {
					case idle <- struct{}{}:
					default:
					}
				}
				return time.After(10 * time.Millisecond)
			}
			go func() {
				defer close(done)
				if err := n.Reconcile(ctx, attach.Reconciling{After: after}); err != nil {
					t.Error(err)
				}
			}()
			defer func() { cancel(); <-done }()
			for _, d := range kindDrifts(design) {
				if !d.quiet {
					continue
				}
				n.pass()
				n.whole(t, "before", job)
				for range 3 { // the third time it has looked at all that was due before
					<-idle
				}
				do(d)
				for range 3 {
					<-idle
				}
				if err := n.Check(t.Context(), job); err == nil {
					t.Errorf("%s: was put back before the pass", d.name)
				}
				n.pass()
				n.whole(t, d.name, job)
			}
		})
	}
}

// whole waits until an attachment is as planned.
func (r *repairNode) whole(t *testing.T, what string, job attach.Job) {
	t.Helper()
	for limit := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := r.Check(t.Context(), job)
		if err == nil {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("%s: not repaired: %v", what, err)
		}
	}
}
