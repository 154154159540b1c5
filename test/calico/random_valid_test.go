// SPDX-License-Identifier: Apache-2.0

package calico_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/calico"
	"github.com/weft-net/weft/internal/cluster/store"
)

// TestWorldsAreValid: the generator draws only objects of which weft understands everything. Felix ignores invalid ones, and
// then a comparison says nothing.
func TestWorldsAreValid(t *testing.T) {
	counts := map[string]int{}
	for seed := range uint64(2000) {
		for _, o := range newWorld(seed, seed%2 == 1, families(seed/2%3)) {
			raw, err := json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			for name, addr := range map[string]string{
				"db": "10.244.0.1", "near": "10.244.0.2", "far": "10.244.1.1", "other": "10.244.1.2", "outside": hubAddr,
				"n1": "192.168.7.1", "n2": "192.168.7.2",
				"db.6": "fd10:244::1", "near.6": "fd10:244::2", "far.6": "fd10:244::3", "other.6": "fd10:244::4", "outside.6": hubAddr6,
				"n1.6": "fd07::1", "n2.6": "fd07::2",
			} {
				raw = []byte(strings.NewReplacer(`"@`+name+`/`, `"`+addr+`/`, `"@`+name+`"`, `"`+addr+`"`).Replace(string(raw)))
			}
			object, err := store.NewObject(raw)
			if err != nil {
				t.Fatal(err)
			}
			counts[object.Key.Kind]++
			var errs []string
			switch {
			case calico.IsTier(object.Key):
				_, err = calico.Tier(object)
			case calico.IsNetworkSet(object.Key):
				_, err = calico.NetworkSet(object)
			case calico.IsHostEndpoint(object.Key):
				_, err = calico.HostEndpoint(object)
			default:
				p, failed := calico.AnyPolicy(object)
				errs, err = p.Errors, failed
			}
			if err != nil || len(errs) > 0 {
				t.Errorf("seed %d: %v %q\n%s", seed, err, errs, raw)
			}
		}
	}
	for _, kind := range []string{"Tier", "NetworkSet", "GlobalNetworkSet", "HostEndpoint", "NetworkPolicy", "GlobalNetworkPolicy"} {
		if counts[kind] < 500 {
			t.Errorf("%d objects of %s", counts[kind], kind)
		}
	}
}
