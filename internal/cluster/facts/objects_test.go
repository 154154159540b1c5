// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// manifest is an object of one of the kinds that a snapshot has, or of another one; some are invalid.
func manifest(t *rapid.T, what int, name string) store.Object {
	v := rapid.IntRange(0, 200).Draw(t, "value")
	text := fmt.Sprintf([]string{
		`{"apiVersion":"v1","kind":"Node","metadata":{"name":%q},"spec":{"podCIDR":"10.0.%d.0/24"}}`,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"a","uid":"u%d"},"spec":{"nodeName":"me"}}`,
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q,"labels":{"v":"%d"}}}`,
		`{"apiVersion":"k8s.cni.cncf.io/v1","kind":"NetworkAttachmentDefinition","metadata":{"name":%q,"namespace":"a"},"spec":{"config":"%d"}}`,
		`{"apiVersion":"weft.dev/v1alpha1","kind":"AddressPool","metadata":{"name":%q},"spec":{"regions":[{"cidr":"10.%d.0.0/16"}]}}`,
		`{"apiVersion":"weft.dev/v1alpha1","kind":"AddressBlock","metadata":{"name":%q},"spec":{"pool":"p","cidr":"10.%d.0.0/26"}}`,
		`{"apiVersion":"v1","kind":"Service","metadata":{"name":%q,"namespace":"a"},"spec":{"v":"%d"}}`,
	}[what], name, v)
	o, err := store.NewObject([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestSnapshotsEqualWhole: after any changes a snapshot is that of all objects, and what it has of the kinds that did not
// change is the last one's.
func TestSnapshotsEqualWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		known, all := newObjects("a"), map[store.Key]store.Object{}
		var last *model.Cluster
		for range rapid.IntRange(1, 20).Draw(t, "snapshots") {
			nodes, pods := false, false
			for range rapid.IntRange(0, 3).Draw(t, "changes") {
				what := rapid.IntRange(0, 6).Draw(t, "kind")
				o := manifest(t, what, fmt.Sprintf("x%d", rapid.IntRange(0, 4).Draw(t, "name")))
				nodes, pods = nodes || what == 0, pods || what == 1
				if rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
					known.delete(o.Key)
					delete(all, o.Key)
				} else {
					known.put(o)
					all[o.Key] = o
				}
			}
			got, _ := known.cluster(last)
			var list []store.Object
			for _, o := range all {
				list = append(list, o)
			}
			want, _ := store.Cluster(list)
			if d := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty()); d != "" {
				t.Fatalf("-want +got:\n%s", d)
			}
			if last != nil && (!nodes && len(got.Nodes) > 0 && &got.Nodes[0] != &last.Nodes[0] ||
				!pods && len(got.Pods) > 0 && &got.Pods[0] != &last.Pods[0]) {
				t.Fatal("what did not change was made again")
			}
			last = &got
		}
	})
}
