// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	"sigs.k8s.io/yaml"
)

// TestStaleOnKubernetes: on a real API server 5,000 stale reservations in a pool, and as many stale claims, cost an ADD no
// request. The claims are listed for a new block only until the node watches the blocks, and never for an address.
func TestStaleOnKubernetes(t *testing.T) {
	nettest.EndToEnd(t)
	s := kubernetes(t)
	const adds = 20
	for round, stale := range []int{0, 5000} {
		var reserved strings.Builder
		for i := range stale {
			if i == 0 {
				reserved.WriteString("  reserved:\n")
			}
			fmt.Fprintf(&reserved, "  - {address: 10.%d.%d.%d, for: shop/gone-%d, by: whereabouts}\n", 60+round, i/250, i%250+1, i)
		}
		name := fmt.Sprintf("pool%d", round)
		manifest, err := yaml.YAMLToJSON([]byte(poolYAML(name, fmt.Sprintf("10.%d.0.0/16", 60+round), 26, reserved.String())))
		if err != nil {
			t.Fatal(err)
		}
		o, err := store.NewObject(manifest)
		if err != nil {
			t.Fatal(err)
		}
		proxy := s.Proxy()
		objects := over(t, s, proxy.URL, name).Objects()
		if _, err := objects.Create(t.Context(), store.AddressPools(), o); err != nil {
			t.Fatal(err)
		}
		s.BulkPut(func(yield func(string, any) bool) {
			for i := range stale {
				address := fmt.Sprintf("10.%d.%d.%d", 60+round, 100+i/250, i%250+1)
				if !yield(fmt.Sprintf("weft.dev/addressclaims/shop/gone-%d", i), map[string]any{
					"apiVersion": "weft.dev/v1alpha1", "kind": "AddressClaim",
					"metadata": map[string]any{"name": fmt.Sprintf("gone-%d", i), "namespace": "shop", "uid": fmt.Sprint(i),
						"creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1},
					"spec":   map[string]any{"addresses": []string{address}},
					"status": map[string]any{"addresses": []string{address}, "node": "gone"},
				}) {
					return
				}
			}
		})
		_, path := cluster(t, nil)
		n := join(t, path, name, func(c *Config) {
			c.Objects, c.Idle = objects, 300*time.Millisecond
			c.WaitLimit = time.Minute // an ADD gives up after 3 s otherwise: a busy host may need more for 5,000 claims
		})
		stop := n.run()
		conf := calicoConf(fmt.Sprintf(`"ipv4_pools":[%q]`, name))
		first := time.Now()
		failed := 0 // on a host so busy that a request of 5,000 claims takes more than its five seconds, a runtime tries again
		for {
			_, err := n.addCluster(conf, "first", model.AddressRequest{})
			if err == nil {
				break
			}
			if failed++; failed > 20 || !errors.Is(err, store.ErrNoAnswer) {
				t.Fatal(err)
			}
		}
		took := time.Since(first)
		begin := time.Now()
		for i := range adds {
			if _, err := n.addCluster(conf, fmt.Sprint("c", i), model.AddressRequest{}); err != nil {
				t.Fatal(err)
			}
		}
		t.Logf("%d stale: the first ADD, which claims a block, took %s; %d more took %s", stale, took, adds, time.Since(begin))
		stop()
		seen := map[string]int{}
		for _, r := range proxy.Seen() {
			seen[r.Method+" "+strings.TrimPrefix(r.Path, "/apis/weft.dev/v1alpha1/")]++
		}
		pages, blocks := seen["GET addressclaims"], seen["POST addressblocks"]
		lists := pages / max(1, stale/500)
		if lists == 0 || lists > blocks+failed || blocks > 2+failed { // one in use and a spare one, which may just be claimed
			t.Errorf("%d stale: %d addresses, %d blocks claimed, and the claims were listed %d times: %v", stale, adds+1, blocks,
				lists, seen)
		}
	}
}
