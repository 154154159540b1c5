// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/model"
)

const ofTheCluster = `apiVersion: v1
kind: Node
metadata: {name: a}
---
apiVersion: v1
kind: Node
metadata: {name: b}
---
apiVersion: v1
kind: Pod
metadata: {name: fine, namespace: shop, annotations: {k8s.v1.cni.cncf.io/network-status: '[{"ips":["10.0.0.1"]}]'}}
spec: {nodeName: a}
status: {podIP: 10.0.0.1}
---
apiVersion: v1
kind: Pod
metadata: {name: ceded, namespace: shop}
spec: {nodeName: b}
status: {podIP: 10.0.0.2}
---
apiVersion: v1
kind: Pod
metadata: {name: astray, namespace: shop}
spec: {nodeName: b}
status: {podIP: 10.0.0.3}
---
apiVersion: v1
kind: Pod
metadata: {name: nowhere, namespace: shop}
spec: {nodeName: a}
status: {podIP: 10.0.9.1}
---
apiVersion: v1
kind: Pod
metadata: {name: reserved, namespace: shop}
spec: {nodeName: a}
status: {podIP: 10.0.9.2}
---
apiVersion: v1
kind: Pod
metadata: {name: over, namespace: shop}
spec: {nodeName: a}
status: {phase: Succeeded, podIP: 10.0.0.1}
---
apiVersion: v1
kind: Pod
metadata: {name: host, namespace: shop}
spec: {nodeName: a, hostNetwork: true}
status: {podIP: 10.0.9.3}
---
apiVersion: weft.dev/v1alpha1
kind: AddressReservation
metadata: {name: r}
spec: {addresses: [10.0.9.0/24, 192.0.2.1]}
---
apiVersion: weft.dev/v1alpha1
kind: AddressReservation
metadata: {name: words}
spec: {addresses: [printer]}
---
apiVersion: weft.dev/v1alpha1
kind: AddressClaim
metadata: {name: one, namespace: shop}
status: {addresses: [10.0.0.9]}
---
apiVersion: weft.dev/v1alpha1
kind: AddressClaim
metadata: {name: two, namespace: shop}
status: {addresses: [10.0.0.9, 10.9.0.1, x]}
---
apiVersion: weft.dev/v1alpha1
kind: AddressPool
metadata: {name: big, creationTimestamp: "2026-01-01T00:00:00Z"}
spec:
  assignmentMode: Automatic
  regions: [{cidr: 10.0.0.0/16, blockSize: 26}]
  reserved: [{address: 10.0.9.2, for: shop/reserved, by: calico}, {address: 10.0.9.9, for: shop/fine, by: calico}]
---
apiVersion: weft.dev/v1alpha1
kind: AddressPool
metadata: {name: late, creationTimestamp: "2026-01-02T00:00:00Z"}
spec: {assignmentMode: Automatic, regions: [{cidr: 10.0.64.0/24, blockSize: 27}]}
---
apiVersion: weft.dev/v1alpha1
kind: AddressPool
metadata: {name: lan}
spec: {regions: [{cidr: 10.0.64.0/24, blockSize: 28}]}
---
apiVersion: weft.dev/v1alpha1
kind: AddressPool
metadata: {name: words, creationTimestamp: "2026-01-02T00:00:00Z"}
spec: {assignmentMode: Automatic, nodeSelector: "zone = x", regions: [{cidr: 10.3.0.0/16, blockSize: 26}]}
---
apiVersion: weft.dev/v1alpha1
kind: AddressBlock
metadata: {name: big-10-0-0-0-26}
spec: {pool: big, cidr: 10.0.0.0/26, node: a, claim: "1", ceded: {10.0.0.2: b/7}}
---
apiVersion: weft.dev/v1alpha1
kind: AddressBlock
metadata: {name: big-10-0-64-0-26}
spec: {pool: big, cidr: 10.0.64.0/26, node: a, claim: "2"}
---
apiVersion: weft.dev/v1alpha1
kind: AddressBlock
metadata: {name: lan-10-0-64-0-28}
spec: {pool: lan, cidr: 10.0.64.0/28, node: b, claim: "3"}
---
apiVersion: weft.dev/v1alpha1
kind: AddressBlock
metadata: {name: late-10-0-64-32-27}
spec: {pool: late, cidr: 10.0.64.32/27, node: b, claim: "4"}
`

// TestInspectCluster: the addresses in pods' status are compared with pools and blocks of the cluster's network; a pool
// of another network may have the same addresses.
func TestInspectCluster(t *testing.T) {
	s := cluster(t, ofTheCluster)
	p, err := Inspect(context.Background(), s.Objects())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range p.Findings {
		got = append(got, fmt.Sprintf("%s [%s]: %s; %s %v", f.Object, f.Pool, f.Msg, f.Fix, f.Stale()))
	}
	want := []string{
		`AddressPool big [big]: address 10.0.9.9 is reserved for pod shop/fine by calico, and the pod has another one; the reservation is removed true`,
		`AddressPool late [late]: it is not allocatable: region 10.0.64.0/24 overlaps with region 10.0.0.0/16 of pool big, which is older;  false`,
		`AddressPool words [words]: it is not allocatable: nodeSelector: selector "zone = x", character 6: unexpected character '=' (the signs are ==, !=, &&, ||, !, ( ), { } and the comma);  false`,
		`AddressBlock late-10-0-64-32-27 [late]: block 10.0.64.32/27 of node "b" overlaps with block 10.0.64.0/26 of node "a";  false`,
		`Pod shop/astray [big]: it is on node "b" and reports address 10.0.0.3, which is in block 10.0.0.0/26 of node "a": re-create the pod;  false`,
		`Pod shop/nowhere [big]: it reports address 10.0.9.1 of pool "big", which is in no node's block: re-create the pod;  false`,
		`AddressReservation r []: 192.0.2.1/32 is in no pool;  false`,
		`AddressReservation words []: AddressReservation words: spec.addresses[0] "printer" is no prefix (write for example "10.244.1.0/24");  false`,
		`AddressClaim shop/two []: address 10.0.0.9 is also in AddressClaim shop/one: delete one of them;  false`,
		`AddressClaim shop/two []: address 10.9.0.1 is in no pool of the cluster's network: no pod can get it;  false`,
		`AddressClaim shop/two []: status.addresses: "x" is no address: delete the claim, and create it again;  false`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("findings (-want +got):\n%s", d)
	}
}

// TestOverlaps: each block that has addresses of another one is found, as by comparing every two.
func TestOverlaps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Report{
			Pools: []model.AddressPool{
				{Name: "a", AssignmentMode: model.AssignAutomatic}, {Name: "b", AssignmentMode: model.AssignManual}, {Name: "c"},
			},
		}
		for range rapid.IntRange(0, 12).Draw(t, "blocks") {
			addr := netip.AddrFrom4([4]byte{10, 0, 0, rapid.Byte().Draw(t, "addr")})
			p.Blocks = append(p.Blocks, model.AddressBlock{
				Pool: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "pool"),
				CIDR: netip.PrefixFrom(addr, rapid.IntRange(25, 32).Draw(t, "bits")).Masked(),
			})
		}
		clash := func(x, y model.AddressBlock) bool {
			return x.CIDR.Overlaps(y.CIDR) && (x.Pool == y.Pool || x.Pool != "c" && y.Pool != "c")
		}
		reported := p.overlaps()
		for i, other := range reported {
			if !clash(p.Blocks[i], *other) {
				t.Fatalf("%v and %v", p.Blocks[i], *other)
			}
		}
		for i, x := range p.Blocks {
			for j, y := range p.Blocks {
				if i != j && clash(x, y) && reported[i] == nil && reported[j] == nil {
					t.Fatalf("%v and %v are not told of", x, y)
				}
			}
		}
	})
}
