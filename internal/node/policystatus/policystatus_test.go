// SPDX-License-Identifier: Apache-2.0

package policystatus

import (
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
)

// TestPolicyCondition: an unsupported policy gets the condition, other conditions stay, and a policy that never was
// unsupported is not changed.
func TestPolicyCondition(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	o, err := store.NewObject(
		[]byte(
			`{"apiVersion":"policy.networking.k8s.io/v1alpha2","kind":"ClusterNetworkPolicy","metadata":{"name":"p","generation":7},
		"spec":{},"status":{"conditions":[{"type":"Theirs","status":"True"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, changed, err := withCondition(o, "", now); changed || err != nil {
		t.Error("a policy that is understood is written to", err)
	}
	bad, changed, err := withCondition(o, "spec.tier is wrong", now)
	if err != nil || !changed {
		t.Fatal(changed, err)
	}
	for _, want := range []string{
		`{"status":"True","type":"Theirs"}`, `"message":"spec.tier is wrong"`, `"observedGeneration":7`,
		`"status":"False","type":"weft.dev/Understood"`,
		`"lastTransitionTime":"2030-01-02T03:04:05Z"`,
	} {
		if !strings.Contains(string(bad.Raw), want) {
			t.Errorf("%s is missing in %s", want, bad.Raw)
		}
	}
	if _, changed, err = withCondition(bad, "spec.tier is wrong", now); changed || err != nil {
		t.Error("the same is written again", err)
	}
	good, changed, err := withCondition(bad, "", now)
	if err != nil || !changed || !strings.Contains(string(good.Raw), `"status":"True","type":"weft.dev/Understood"`) ||
		strings.Contains(string(good.Raw), "wrong") {
		t.Errorf("%t %v %s", changed, err, good.Raw)
	}
}
