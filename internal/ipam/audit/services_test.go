// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/cluster/store/dir"
)

const ofServices = `apiVersion: weft.dev/v1alpha1
kind: AddressPool
metadata: {name: lan}
spec: {assignmentMode: Automatic, allowedUses: [LoadBalancer], regions: [{cidr: 192.0.2.0/29}]}
---
apiVersion: v1
kind: Service
metadata: {name: one, namespace: shop, creationTimestamp: "2026-01-01T00:00:00Z"}
spec: {type: LoadBalancer}
status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}
---
apiVersion: v1
kind: Service
metadata: {name: again, namespace: shop, creationTimestamp: "2026-01-02T00:00:00Z"}
spec: {type: LoadBalancer}
status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}
---
apiVersion: v1
kind: Service
metadata: {name: moved, namespace: shop}
spec: {type: LoadBalancer}
status:
  loadBalancer: {ingress: [{ip: 198.51.100.1}]}
  conditions: [{type: weft.dev/LoadBalancerIPs, status: "True"}]
---
apiVersion: v1
kind: Service
metadata: {name: vendor, namespace: shop}
spec: {type: LoadBalancer}
status: {loadBalancer: {ingress: [{ip: 198.51.100.2}]}}
---
apiVersion: v1
kind: Service
metadata: {name: pod, namespace: shop}
spec: {type: LoadBalancer}
status: {loadBalancer: {ingress: [{ip: 192.0.2.2}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: db, namespace: shop}
spec: {nodeName: a}
status: {podIP: 192.0.2.2}
`

// TestServices: addresses of Services are in use, and those that two have, or that are in no pool, are found.
func TestServices(t *testing.T) {
	path := t.TempDir()
	if err := os.WriteFile(filepath.Join(path, "all.yaml"), []byte(ofServices), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := dir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Inspect(t.Context(), s.Objects())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range p.Findings {
		if f.Object != "Pod shop/db" { // it has no block
			got = append(got, f.Object+": "+string(f.Reason)+" "+f.Pool+": "+f.Msg)
		}
	}
	want := []string{
		"Service shop/again: Conflict lan: address 192.0.2.1 is also in Service shop/one: delete one of them",
		"Service shop/moved: NoPool : address 198.51.100.1 is in no pool with allowedUses: [LoadBalancer]: add it to one, or request another one",
		"Service shop/pod: Conflict lan: address 192.0.2.2 is also in use by pod shop/db: delete one of them",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if u := p.Usage().Pools[0]; u.Used != 2 || u.Total.Int64() != 8 {
		t.Errorf("usage %+v", u)
	}
}
