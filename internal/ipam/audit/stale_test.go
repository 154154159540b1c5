// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
)

// writeCounter counts writes to a datastore.
type writeCounter struct {
	store.Objects
	writes int
}

func (c *writeCounter) CompareAndSwap(ctx context.Context, k store.Kind, version string, o store.Object) (store.Object, error) {
	c.writes++
	return c.Objects.CompareAndSwap(ctx, k, version, o)
}

// TestStaleReservations: 5,000 reservations for deleted pods in two pools are removed by one write of each pool, and
// those of pods that exist stay.
func TestStaleReservations(t *testing.T) {
	const stale, living = 5000, 50
	path := t.TempDir()
	var pools, pods strings.Builder
	for p, name := range []string{"a", "b"} {
		fmt.Fprintf(&pools, "---\napiVersion: weft.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: %s}\nspec:\n"+
			"  regions: [{cidr: 10.%d.0.0/16, blockSize: 26}]\n  reserved:\n", name, p)
		for i := range (stale + living) / 2 {
			pod := fmt.Sprintf("shop/gone-%s-%d", name, i)
			if i < living/2 {
				pod = fmt.Sprintf("shop/live-%s-%d", name, i)
				fmt.Fprintf(&pods, "---\napiVersion: v1\nkind: Pod\nmetadata: {name: live-%s-%d, namespace: shop}\nspec: {nodeName: n1}\n",
					name, i)
			}
			fmt.Fprintf(&pools, "  - {address: 10.%d.%d.%d, for: %s, by: whereabouts}\n", p, i/250, i%250+1, pod)
		}
	}
	for name, text := range map[string]string{
		"pools": pools.String(), "pods": pods.String(), "node": "{apiVersion: v1, kind: Node, metadata: {name: n1}}",
	} {
		if err := os.WriteFile(filepath.Join(path, name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := dir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	objects := &writeCounter{Objects: s.Objects()}
	report, err := Inspect(t.Context(), objects)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := report.Fix(t.Context(), objects); err != nil || n != stale {
		t.Errorf("%d reservations were removed, want %d: %v", n, stale, err)
	}
	if objects.writes != 2 {
		t.Errorf("%d writes for two pools", objects.writes)
	}
	all, err := objects.List(t.Context(), store.AddressPools())
	if err != nil {
		t.Fatal(err)
	}
	left := 0
	for _, o := range all {
		pool, err := o.AddressPool()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range pool.Reserved {
			left++
			if !strings.HasPrefix(r.Owner, "shop/live-") {
				t.Errorf("a reservation for %s is left", r.Owner)
			}
		}
	}
	if left != living {
		t.Errorf("%d reservations of running pods are left, want %d", left, living)
	}
}
