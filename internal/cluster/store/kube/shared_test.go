// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"testing"

	"github.com/weft-net/weft/internal/cluster/store"
)

// TestShared: of several stores one decodes each version of an object, and all get what they would decode.
func TestShared(t *testing.T) {
	raw := func(version int) []byte {
		return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"a","resourceVersion":"%d"}}`, version)
	}
	decoded := 0
	keep := func(raw []byte) (store.Object, error) {
		decoded++
		return reduceFact(raw)
	}
	for _, tc := range []struct {
		shared *Shared
		want   int
	}{{nil, 6}, {NewShared(), 2}} {
		decoded = 0
		for _, version := range []int{1, 1, 2, 1, 2, 2} {
			i, err := tc.shared.newItem(store.Nodes(), raw(version), keep)
			if err != nil || i.ResourceVersion != fmt.Sprint(version) || i.object.Key.Name != "a" {
				t.Fatal(i, err)
			}
		}
		if decoded != tc.want {
			t.Errorf("shared %v: %d decoded, want %d", tc.shared != nil, decoded, tc.want)
		}
	}
}
