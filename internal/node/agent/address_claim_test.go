// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/nettest"
)

// TestAddressClaimOfPods: pods that name a claim use its address, one after the other; the claim is written before the
// pod gets the address.
func TestAddressClaimOfPods(t *testing.T) {
	nettest.EndToEnd(t)
	p := newTwo(t, "pools: [{name: green, cidr: 10.77.0.0/24, blockSize: 28}]")
	o, err := store.NewObject(
		[]byte(
			`{"apiVersion":"weft.dev/v1alpha1","kind":"AddressClaim","metadata":{"namespace":"shop","name":"db"},"spec":{}}`,
		),
	)
	if err == nil {
		_, err = p.store.Create(t.Context(), o)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"first", "second", "third"} {
		p.put("Pod", "shop", name, map[string]string{"weft.dev/address-claim": "db"})
	}
	p.put("Pod", "shop", "other", nil)
	ns, addr, err := p.named("shop", "first")
	if err != nil || !netip.MustParsePrefix("10.77.0.0/24").Contains(addr) {
		t.Fatalf("%s %v\n%s", addr, err, p.nodes[0].log())
	}
	if o, err = p.store.Get(o.Key); err != nil ||
		!strings.Contains(string(o.Raw), `"status":{"addresses":["`+addr.String()+`"],"node":"n1"}`) {
		t.Errorf("%s %v", o.Raw, err)
	}
	if _, got, err := p.named("shop", "second"); err == nil ||
		!strings.Contains(err.Error(), "is taken by interface eth0 of container id-first") {
		t.Errorf("a second pod at the same time: %s %v", got, err)
	}
	list, err := p.nodes[0].own()
	if err == nil {
		err = p.nodes[0].cni.DelNetworkList(p.nodes[0].ctx(), list, runtimeConf("id-first", ns))
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, got, err := p.named("shop", "other"); err != nil || got == addr {
		t.Errorf("a pod without the claim: %s %v", got, err)
	}
	if _, got, err := p.named("shop", "third"); err != nil || got != addr {
		t.Errorf("the claim's next pod: %s %v, want %s\n%s", got, err, addr, p.nodes[0].log())
	}
}
