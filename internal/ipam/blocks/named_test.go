// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"strings"
	"testing"
)

// TestNamedPool: a configuration that names a pool and no range gets an address of each family that the pool has.
func TestNamedPool(t *testing.T) {
	_, path := cluster(t, map[string]string{
		"a.yaml": "apiVersion: weft.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: both}\nspec:\n  regions: [{cidr: 10.1.0.0/24, blockSize: 28}, {cidr: \"fd00::/64\", blockSize: 124}]\n",
		"b.yaml": poolYAML("idle", "10.2.0.0/24", 28, "  disabled: true\n"),
	})
	a := join(t, path, "a", nil)
	conf := func(pool string) string {
		return `{"cniVersion":"1.0.0","name":"net","type":"macvlan","ipam":{"type":"weft","pool":"` + pool + `"}}`
	}
	if got := a.mustAdd(conf("both"), "c1"); got != "[10.1.0.1 fd00::1]" {
		t.Errorf("addresses %s", got)
	}
	for pool, want := range map[string]string{
		"idle": `ipam.pool: pool "idle" allocates no addresses: it is disabled or being deleted (choose another pool, or enable it)`,
		"none": `ipam.pool: there is no pool "none" (create an AddressPool of that name)`,
	} {
		if _, err := a.add(conf(pool), "c2"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("pool %s: %v", pool, err)
		}
	}
}
