// SPDX-License-Identifier: Apache-2.0

package calico_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/calico"
	"github.com/weft-net/weft/internal/cluster/store/dir"
)

// TestUnenforced: what is not enforced is found in both groups, once each, with the reason; what Calico itself made is
// left out.
func TestUnenforced(t *testing.T) {
	path := t.TempDir()
	text := `
apiVersion: crd.projectcalico.org/v1
kind: NetworkPolicy
metadata: {name: default.closed, namespace: shop}
spec: {ingress: [{action: Allow, http: {methods: [GET]}}]}
---
apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {name: closed, namespace: shop}
spec: {ingress: [{action: Allow, http: {methods: [GET]}}]}
---
apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {name: knp.default.other, namespace: shop}
---
apiVersion: crd.projectcalico.org/v1
kind: GlobalNetworkPolicy
metadata: {name: default-deny}
---
apiVersion: crd.projectcalico.org/v1
kind: GlobalNetworkPolicy
metadata: {name: pods-only}
spec: {namespaceSelector: has(projectcalico.org/name)}
---
apiVersion: crd.projectcalico.org/v1
kind: GlobalNetworkPolicy
metadata: {name: port}
spec: {preDNAT: true, applyOnForward: true}
---
apiVersion: projectcalico.org/v3
kind: StagedNetworkPolicy
metadata: {name: staged, namespace: shop}
---
apiVersion: crd.projectcalico.org/v1
kind: Tier
metadata: {name: default}
---
apiVersion: crd.projectcalico.org/v1
kind: Tier
metadata: {name: security}
---
apiVersion: crd.projectcalico.org/v1
kind: HostEndpoint
metadata: {name: n1-auto-hep, labels: {projectcalico.org/created-by: calico-kube-controllers}}
---
apiVersion: crd.projectcalico.org/v1
kind: HostEndpoint
metadata: {name: n1-eth0}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: kubernetes, namespace: shop}
spec: {podSelector: {}}
`
	if err := os.WriteFile(filepath.Join(path, "all.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := dir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := calico.Unenforced(t.Context(), s.Objects())
	want := []string{
		"GlobalNetworkPolicy default-deny (it also selects HostEndpoint n1-auto-hep)",
		"GlobalNetworkPolicy port (preDNAT is for host endpoints)", "HostEndpoint n1-eth0",
		"NetworkPolicy shop/closed (spec.ingress[0].http: a match of HTTP needs a proxy, and weft has none)",
	}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v\n%s", err, d)
	}
	if text := calico.Summary([]string{"a", "b", "c", "d", "e", "f", "g"}); text != "7 (a, b, c, d, e and 2 more)" {
		t.Error(text)
	}
}
