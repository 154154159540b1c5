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
	"github.com/weft-net/weft/internal/nettest"
)

// kindDrift is a drift, the kind of thing that it takes away, and whether the kernel reports it.
type kindDrift struct {
	drift
	kind  string
	quiet bool
}

const shaper = `{"type":"bandwidth","ingressRate":80000000,"ingressBurst":8000000,"egressRate":80000000,"egressBurst":8000000}`

// kindChains are networks of two families with everything that an attachment can have on the node, and a guest's
// network on one of them, whose join is an nft table in the pod.
func kindChains() map[string]string {
	return map[string]string{
		"direct": `{"type":"weft-direct","link":"eth0","join":"nft-fwd"}`,
		"routed": strings.Replace(calico, `"mtu":1400`, `"mtu":1400,"policy_setup_timeout_seconds":0`, 1) + "," + shaper,
		"bridge": `{"type":"bridge","bridge":"abr0","isDefaultGateway":true,"ipMasq":true,"hairpinMode":true,"capabilities":{"portMappings":true},"ipam":{"type":"host-local","dataDir":"DATA",
			"ranges":[[{"subnet":"10.8.0.0/24"}],[{"subnet":"fd00:8::/64"}]]}},{"type":"tuning","sysctl":{"net.ipv4.conf.eth0.arp_filter":"1"}},` + shaper,
	}
}

func kindDrifts(design string) []kindDrift {
	const join = "netdev weft_join_tap0"
	if design == "direct" {
		return []kindDrift{
			{drift: drift{name: "a table in the pod", pod: "nft delete table " + join}, kind: "join"},
			{drift: drift{name: "rules in the pod", pod: "nft flush chain " + join + " guest"}, kind: "join"},
			{drift: drift{name: "a rule that is added in the pod", pod: "nft insert rule " + join + " guest drop"}, kind: "join"},
		}
	}
	both := []kindDrift{
		{drift: drift{name: "IPv6 address in the pod", pod: "ip addr del POD6/PLEN6 dev eth0"}, kind: "addr"},
		{drift: drift{name: "IPv6 default route in the pod", pod: "ip -6 route del default"}, kind: "route"},
		{drift: drift{name: "shaper in the pod", pod: "tc qdisc del dev eth0 root"}, kind: "qdisc"},
		{drift: drift{name: "shaper of the node's end", node: "tc qdisc del dev HOST root"}, kind: "qdisc"},
		{
			drift: drift{
				name: "rate of the node's end", node: "tc qdisc change dev HOST root tbf rate 800mbit burst 1mb latency 10ms",
			},
			kind: "qdisc",
		},
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
			kindDrift{
				drift: drift{name: "a rule of others in the source guard", node: "nft insert rule inet weft_source prerouting accept"},
				kind:  "nft",
			},
		)
	}
	return append(both,
		kindDrift{drift: drift{name: "IPv6 gateway address", node: "ip addr del fd00:8::1/64 dev abr0"}, kind: "addr"},
		kindDrift{drift: drift{name: "hairpin mode of the port", node: "bridge link set dev HOST hairpin off"}, kind: "link"},
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

// take returns the kinds since the last take.
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
			idle := n.reconcilePolling(t)
			for _, d := range kindDrifts(design) {
				n.pass()
				if d.quiet {
					continue
				}
				idle() // the pass is over: only an event makes it look again
				do(d)
				n.whole(t, d.name, job)
			}
			if err := n.Del(t.Context(), job); err != nil {
				t.Error(err)
			}
		})
	}
}

// reconcilePolling runs the reconciler until the test ends. idle waits until nothing is due any more, by the node's clock.
func (r *repairNode) reconcilePolling(t *testing.T) (idle func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done, nothing := make(chan struct{}), make(chan struct{}, 1)
	after := func(wait time.Duration) <-chan time.Time {
		// time is what the test says it is; it may look as often as it likes
		if wait > time.Second { // nothing is due because of what was heard
			select {
			case nothing <- struct{}{}:
			default:
			}
		}
		return time.After(10 * time.Millisecond)
	}
	go func() {
		defer close(done)
		if err := r.Reconcile(ctx, attach.ReconcileConfig{After: after}); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return func() {
		t.Helper()
		for range 3 { // the third time it has looked at all that was due before
			select {
			case <-nothing:
			case <-time.After(30 * time.Second):
				t.Fatal("something is always due")
			}
		}
	}
}

// newKindNode attaches a pod, and returns what takes things from it.
func newKindNode(
	t *testing.T, design, chain string, edit ...func(*attach.Config),
) (*repairNode, *counted, attach.Job, func(kindDrift)) {
	t.Helper()
	n := newRepairNode(t, design == "routed")
	c := &counted{kinds: map[string]int{}}
	n.cfg.Repaired = c.note
	for _, e := range edit {
		e(&n.cfg)
	}
	n.Attacher = attach.New(n.cfg)
	first := chain
	if design == "direct" {
		nettest.Need(t, "tap")
		first = kindChains()["bridge"]
	}
	job := n.podJob(first, "web-0")
	result := n.add(job)
	job.Prev = &result
	host := result.Interfaces[0].Name
	if design != "routed" {
		host = result.Interfaces[1].Name
	}
	if design == "direct" {
		job = n.job(n.list(chain), job.Request.ContainerID, job.Netns)
		job.Request.IfName = "net1"
		r := n.add(job)
		job.Prev = &r
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
			idle := n.reconcilePolling(t)
			for _, d := range kindDrifts(design) {
				if !d.quiet {
					continue
				}
				n.pass()
				n.whole(t, "before", job)
				idle()
				do(d)
				idle()
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
	r.wholeWithin(t, 30*time.Second, what, job)
}

func (r *repairNode) wholeWithin(t *testing.T, limit time.Duration, what string, job attach.Job) {
	t.Helper()
	for limit := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		err := r.Check(t.Context(), job)
		if err == nil {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("%s: not repaired: %v", what, err)
		}
	}
}
