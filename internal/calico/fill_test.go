// SPDX-License-Identifier: Apache-2.0

package calico_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/weft-net/weft/internal/calico"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy/reach"
)

// TestFill: the valid parts of invalid objects are read, and the rest is said, but it is no failure to read the cluster.
func TestFill(t *testing.T) {
	path := t.TempDir()
	text := `
apiVersion: crd.projectcalico.org/v1
kind: Tier
metadata: {name: first}
spec: {order: 5, defaultAction: Allow}
---
apiVersion: crd.projectcalico.org/v1
kind: Tier
metadata: {name: unreadable}
spec: {order: soon}
---
apiVersion: crd.projectcalico.org/v1
kind: GlobalNetworkSet
metadata: {name: banned}
spec: {nets: [10.0.0.0/33, 10.1.0.0/16]}
`
	if err := os.WriteFile(filepath.Join(path, "objects.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := dir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	var in reach.Input
	policies := []model.Policy{{PolicyKey: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "p"}}}
	invalid, err := calico.Fill(t.Context(), s.Objects(), policies, &in)
	if err != nil || len(invalid) != 3 {
		t.Fatalf("%v; invalid: %v", err, invalid)
	}
	if len(in.Tiers) != 1 || in.Tiers[0].Name != "first" || in.Tiers[0].Pass {
		t.Errorf("tiers: %+v", in.Tiers)
	}
	if len(in.Sets) != 1 || len(in.Sets[0].Nets) != 1 || !in.Sets[0].Incomplete {
		t.Errorf("sets: %+v", in.Sets)
	}
}
