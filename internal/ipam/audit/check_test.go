// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/cluster/store/dir"
)

const troubled = `apiVersion: v1
kind: Node
metadata: {name: a}
---
apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: shop}
spec: {nodeName: a}
---
apiVersion: weft.dev/v1alpha1
kind: AddressPool
metadata: {name: p}
spec:
  regions: [{cidr: 10.0.0.0/24, blockSize: 28}]
  reserved:
  - {address: 10.0.0.5, for: shop/web-0, by: whereabouts}
  - {address: 10.0.0.6, for: shop/web-1, by: whereabouts}
  - {address: 10.0.0.7, for: the printer}
status: {wanted: [a, gone]}
---
apiVersion: weft.dev/v1alpha1
kind: AddressBlock
metadata: {name: p-10-0-0-0-28}
spec: {pool: p, cidr: 10.0.0.0/28, node: a, claim: "1", ceded: {10.0.0.8: gone/2, 10.0.0.9: ""}}
---
apiVersion: weft.dev/v1alpha1
kind: AddressBlock
metadata: {name: p-10-0-0-16-28}
spec: {pool: p, cidr: 10.0.0.16/28, node: gone, claim: "2"}
---
apiVersion: weft.dev/v1alpha1
kind: AddressBlock
metadata: {name: p-10-0-0-24-29}
spec: {pool: p, cidr: 10.0.0.24/29, node: a, claim: "3"}
---
apiVersion: weft.dev/v1alpha1
kind: AddressBlock
metadata: {name: q-10-0-0-0-28}
spec: {pool: q, cidr: 10.0.0.0/28, node: a, claim: "4"}
---
apiVersion: weft.dev/v1alpha1
kind: AddressBlock
metadata: {name: misnamed}
spec: {pool: p, cidr: 10.0.0.32/28, node: a, claim: "5"}
`

func TestInspectAndFix(t *testing.T) {
	s := cluster(t, troubled)
	check := func() (Report, []string) {
		t.Helper()
		p, err := Inspect(context.Background(), s.Objects())
		if err != nil {
			t.Fatal(err)
		}
		var words []string
		for _, f := range p.Findings {
			words = append(words, f.Object+": "+f.Msg+"; "+f.Fix)
		}
		return p, words
	}
	report := []string{
		`AddressBlock misnamed: AddressBlock misnamed: spec: pool "p" and cidr 10.0.0.32/28 belong to the name "p-10-0-0-32-28" (delete it; weft makes these objects itself); `,
	}
	cut := `AddressBlock p-10-0-0-24-29: block 10.0.0.24/29 does not match the regions of pool "p"; `
	noPool := `AddressBlock q-10-0-0-0-28: there is no pool "q"; `
	want := append([]string{}, report...)
	want = append(want,
		`AddressPool p: address 10.0.0.6 is reserved for pod shop/web-1 by whereabouts, and there is no such pod; the reservation is removed`,
		`AddressPool p: node "gone" is in status.exhaustedOn, and there is no such node; it is removed`,
		`AddressBlock p-10-0-0-0-28: address 10.0.0.8 is lent to node "gone", and there is no such node; the address is free`,
		`AddressBlock p-10-0-0-16-28: block 10.0.0.16/28 belongs to node "gone", and there is no such node; the block is free`,
		cut,
		`AddressBlock p-10-0-0-24-29: block 10.0.0.24/29 of node "a" overlaps with block 10.0.0.16/28 of node "gone"; `,
		noPool,
	)
	p, got := check()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("findings (-want +got):\n%s", d)
	}
	if n, err := p.Fix(context.Background(), s.Objects()); err != nil || n != 4 {
		t.Errorf("fixed %d, error %v", n, err)
	}
	if _, got := check(); cmp.Diff(append(report, cut, noPool), got) != "" {
		t.Errorf("left: %q", got)
	}
}

// cluster is a store with the objects of some manifests.
func cluster(t *testing.T, manifests ...string) *dir.Store {
	t.Helper()
	path := t.TempDir()
	if err := os.WriteFile(filepath.Join(path, "all.yaml"), []byte(strings.Join(manifests, "\n---\n")),
		0o600); err != nil {
		t.Fatal(err)
	}
	s, err := dir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestTwoHosts: a node whose blocks have two machine IDs is found.
func TestTwoHosts(t *testing.T) {
	block := func(name, cidr, vm string) string {
		return "apiVersion: weft.dev/v1alpha1\nkind: AddressBlock\nmetadata: {name: p-" + name + "}\n" +
			"spec: {pool: p, cidr: " + cidr + ", node: a, claim: \"1\", machine: " + vm + "}\n"
	}
	s := cluster(t,
		"apiVersion: weft.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: p}\nspec: {regions: [{cidr: 10.0.0.0/24, blockSize: 28}]}\n",
		block("10-0-0-0-28", "10.0.0.0/28", "one"), block("10-0-0-16-28", "10.0.0.16/28", "one"),
		block("10-0-0-32-28", "10.0.0.32/28", "two"))
	p, err := Inspect(t.Context(), s.Objects())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`AddressBlock p-10-0-0-32-28: node "a" runs on two hosts: block 10.0.0.32/28 has machine ID two, block 10.0.0.0/28 has machine ID one; `,
	}
	if d := cmp.Diff(want, said(p)); d != "" {
		t.Errorf("findings (-want +got):\n%s", d)
	}
}
