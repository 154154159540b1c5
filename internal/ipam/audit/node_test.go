// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/blockreport"
	"github.com/weft-net/weft/internal/model"
)

// leaks are what the store can tell, one of each kind that only pods show.
const leaks = `apiVersion: v1
kind: Node
metadata: {name: a}
---
apiVersion: v1
kind: Node
metadata: {name: b}
---
apiVersion: v1
kind: Pod
metadata: {name: fine, namespace: shop, annotations: {k8s.v1.cni.cncf.io/network-status: '[{"ips":["10.0.0.1","172.16.0.9"]}]'}}
spec: {nodeName: a}
---
apiVersion: v1
kind: Pod
metadata: {name: ceded, namespace: shop, annotations: {k8s.v1.cni.cncf.io/network-status: '[{"ips":["10.0.0.8"]}]'}}
spec: {nodeName: b}
---
apiVersion: v1
kind: Pod
metadata: {name: over, namespace: shop, annotations: {k8s.v1.cni.cncf.io/network-status: '[{"ips":["10.0.0.1"]}]'}}
spec: {nodeName: a}
status: {phase: Succeeded}
---
apiVersion: v1
kind: Pod
metadata: {name: twice, namespace: shop, annotations: {k8s.v1.cni.cncf.io/network-status: '[{"ips":["10.0.0.1"]}]'}}
spec: {nodeName: a}
---
apiVersion: v1
kind: Pod
metadata: {name: unclaimed, namespace: shop, annotations: {k8s.v1.cni.cncf.io/network-status: '[{"ips":["10.0.0.200"]}]'}}
spec: {nodeName: a}
---
apiVersion: v1
kind: Pod
metadata: {name: wrong, namespace: shop, annotations: {k8s.v1.cni.cncf.io/network-status: '[{"ips":["10.0.0.2"]}]'}}
spec: {nodeName: b}
---
apiVersion: v1
kind: Pod
metadata: {name: migrated, namespace: shop, annotations: {kubevirt.io/domain: vm, k8s.v1.cni.cncf.io/network-status: '[{"ips":["10.0.1.7"]}]'}}
spec: {nodeName: b}
---
apiVersion: weft.dev/v1alpha1
kind: AddressPool
metadata: {name: further}
spec: {regions: [{cidr: 10.0.1.0/24, blockSize: 32}]}
---
apiVersion: weft.dev/v1alpha1
kind: AddressBlock
metadata: {name: further-10-0-1-7-32}
spec: {pool: further, cidr: 10.0.1.7/32, node: a, claim: "3"}
---
apiVersion: v1
kind: Pod
metadata: {name: orphan, namespace: shop}
spec: {nodeName: gone}
---
apiVersion: weft.dev/v1alpha1
kind: AddressPool
metadata: {name: p}
spec:
  regions: [{cidr: 10.0.0.0/24, blockSize: 28}]
  reserved: [{address: 10.0.0.5, for: shop/fine, by: whereabouts}]
---
apiVersion: weft.dev/v1alpha1
kind: AddressBlock
metadata: {name: p-10-0-0-0-28}
spec: {pool: p, cidr: 10.0.0.0/28, node: a, claim: "1", ceded: {10.0.0.8: b/2}, asked: {10.0.0.9: lost, 10.0.0.10: b}}
---
apiVersion: weft.dev/v1alpha1
kind: AddressBlock
metadata: {name: p-10-0-0-16-28}
spec: {pool: p, cidr: 10.0.0.16/28, node: gone, claim: "2"}
`

func TestLeaksOfTheCluster(t *testing.T) {
	s := cluster(t, leaks)
	want := []string{
		`AddressPool p: address 10.0.0.5 is reserved for pod shop/fine by whereabouts, and the pod does not report it: remove it from spec.reserved if it is unused; `,
		`AddressBlock p-10-0-0-0-28: node "lost" requests address 10.0.0.9, and there is no such node; the request is removed`,
		`AddressBlock p-10-0-0-16-28: block 10.0.0.16/28 belongs to node "gone", and there is no such node, but 1 pods are on it: delete them first; `,
		`Pod shop/twice: address 10.0.0.1 of pool "p": pod shop/fine reports it, too: delete one of them; `,
		`Pod shop/unclaimed: it reports address 10.0.0.200 of pool "p", which is in no node's block: re-create the pod; `,
		`Pod shop/wrong: it is on node "b" and reports address 10.0.0.2, which is in block 10.0.0.0/28 of node "a": re-create the pod; `,
	}
	check := func() Report {
		t.Helper()
		p, err := Inspect(context.Background(), s.Objects())
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := check()
	if d := cmp.Diff(want, said(p)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if n, err := p.Fix(context.Background(), s.Objects()); err != nil || n != 1 {
		t.Errorf("fixed %d, error %v", n, err)
	}
	if left := said(check()); len(left) != len(want)-1 {
		t.Errorf("left: %q", left)
	}
}

func said(p Report) []string {
	var words []string
	for _, f := range p.Findings {
		words = append(words, f.Object+": "+f.Msg+"; "+f.Fix)
	}
	return words
}

func key(id string) model.AttachmentKey {
	return model.AttachmentKey{Network: "net", ContainerID: id, IfName: "net1"}
}

// TestLeaksOfANode plants each kind of leak between memory, ledger, kernel and pods.
func TestLeaksOfANode(t *testing.T) {
	a := netip.MustParseAddr
	recorded := func(id, pod string, addrs ...netip.Addr) LedgerEntry {
		return LedgerEntry{AttachmentKey: key(id), Done: true, Old: true, Pod: pod, Netns: "/run/netns/" + id, Addrs: addrs}
	}
	good := func() NodeState {
		return NodeState{
			Allocations: Allocations{Allocations: blockreport.Allocations{
				Node: "a", Blocks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/28")},
				Held: []blockreport.HeldAddress{
					{Pool: "p", Addr: a("10.0.0.1"), AttachmentKey: key("one")}, {Pool: "p", Addr: a("10.0.0.2"), Claim: "shop/db"},
				},
			}},
			Ledger: []LedgerEntry{
				recorded("one", "shop/web-0", a("10.0.0.1")), recorded("theirs", "shop/web-0", a("192.168.0.1")),
				{AttachmentKey: key("begun"), Netns: "/run/netns/begun"},
			},
			Kernel: []ObservedAddress{{"/run/netns/one", "net1", a("10.0.0.1")}, {"/run/netns/one", "lo", a("127.0.0.1")}},
		}
	}
	const one = "interface net1 of container one"
	for name, c := range map[string]struct {
		plant func(*NodeState)
		want  []string
	}{
		"nothing": {func(*NodeState) {}, nil},
		"held, and not recorded": {func(l *NodeState) {
			l.Held = append(l.Held, blockreport.HeldAddress{Pool: "p", Addr: a("10.0.0.3"), AttachmentKey: key("lost")})
		}, []string{
			`this node: address 10.0.0.3 of pool "p" is held for interface net1 of container lost, and the ledger has no such attachment: restart the agent, pods stay; `,
		}},
		"recorded, and not held": {
			func(l *NodeState) { l.Held = nil }, []string{
				`this node: address 10.0.0.1 is in the ledger for ` + one +
					`, and may be allocated again: restart the agent, pods stay; `,
			},
		},
		"recorded twice": {func(l *NodeState) {
			l.Ledger = append(l.Ledger, recorded("two", "shop/web-0", a("10.0.0.1")))
			l.Kernel = append(l.Kernel, ObservedAddress{"/run/netns/two", "net1", a("10.0.0.1")})
		}, []string{
			`this node: address 10.0.0.1 is in the ledger for ` + one +
				` and for interface net1 of container two: delete one of the pods; `,
		}},
		"no such pod": {
			func(l *NodeState) { l.Ledger[0].Pod = "shop/gone" },
			[]string{
				`this node: ` + one +
					` is of pod shop/gone, and there is no such pod: the agent removes it when the runtime does not list its sandbox; `,
			},
		},
		"a pod not yet known": {func(l *NodeState) { l.Ledger[0].Pod, l.Ledger[0].Old = "shop/new", false }, nil},
		"namespace gone": {
			func(l *NodeState) { l.Gone, l.Kernel = []string{"/run/netns/one"}, nil },
			[]string{
				`this node: address 10.0.0.1 is held for ` + one +
					`, whose namespace /run/netns/one is gone: the agent removes it when the runtime does not list its sandbox; `,
			},
		},
		"address taken away": {
			func(l *NodeState) { l.Kernel = nil }, []string{
				`this node: address 10.0.0.1 is held for ` + one + `, which does not have it: delete the pod; `,
			},
		},
		"nobody's address": {
			func(l *NodeState) {
				l.Kernel = append(l.Kernel, ObservedAddress{"/run/netns/x", "eth9", a("10.0.0.7")})
			},
			[]string{
				`this node: address 10.0.0.7 is on eth9 in /run/netns/x, and this node may allocate it again: stop what uses it, or reserve it in the pool; `,
			},
		},
	} {
		p := Report{pods: podIndex{"shop/web-0": podInfo{}}}
		l := good()
		c.plant(&l)
		p.Compare(l)
		if d := cmp.Diff(c.want, said(p)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// TestLentBlockOfAGoneNode: a block of a deleted node is not free while other nodes have pods with addresses of it. They may
// not be running, and then could not claim their addresses before another node allocates them.
func TestLentBlockOfAGoneNode(t *testing.T) {
	s := cluster(t, `apiVersion: v1
kind: Node
metadata: {name: b}
---
apiVersion: weft.dev/v1alpha1
kind: AddressPool
metadata: {name: p}
spec: {regions: [{cidr: 10.0.0.0/24, blockSize: 28}]}
---
apiVersion: weft.dev/v1alpha1
kind: AddressBlock
metadata: {name: p-10-0-0-0-28}
spec: {pool: p, cidr: 10.0.0.0/28, node: gone, claim: "1", ceded: {10.0.0.8: b/2, 10.0.0.9: gone-too/3}}
`)
	const found = `AddressBlock p-10-0-0-0-28: block 10.0.0.0/28 belongs to node "gone", and there is no such node, and other nodes borrow 1 addresses of it; `
	for round, want := range [][]string{
		{
			found + "other nodes take the block over with the lent addresses",
			`AddressBlock p-10-0-0-0-28: address 10.0.0.9 is lent to node "gone-too", and there is no such node; the address is free`,
		},
		{found},
	} {
		p, err := Inspect(context.Background(), s.Objects())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range p.Findings {
			got = append(got, f.Object+": "+f.Msg+"; "+f.Fix)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("round %d: findings (-want +got):\n%s", round, d)
		}
		if _, err := p.Fix(context.Background(), s.Objects()); err != nil {
			t.Error(err)
		}
	}
	o, err := s.Get(store.AddressBlocks().Key("", "p-10-0-0-0-28"))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := o.AddressBlock(); err != nil || !b.Orphaned || b.Lent[netip.MustParseAddr("10.0.0.8")] != "b/2" {
		t.Errorf("the block is %+v, %v", b, err)
	}
}
