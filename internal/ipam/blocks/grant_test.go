// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// TestClaimThatLies: another node's agent may write addresses of this node into the claim of a VM that runs here. This
// node does not sign that with its name.
func TestClaimThatLies(t *testing.T) {
	_, path := cluster(t, map[string]string{
		"four.yaml": poolYAML("four", "10.1.0.0/27", 29), "six.yaml": poolYAML("six", "fd01::/112", 124),
		"vm.yaml": vmManifest("db", "u1"),
	})
	a := join(t, path, "a", func(c *Config) { c.SeparateController = true })
	words := strings.Fields(a.runs("db", "pod1", false, `"assign_ipv4":"true"`, `"assign_ipv6":"true"`))
	if len(words) != 2 {
		t.Fatalf("the machine has %v", words)
	}
	four, six := netip.MustParseAddr(words[0]), netip.MustParseAddr(words[1])
	kind := store.AddressClaims()
	key := kind.Key("shop", model.VMRef{
		Namespace: "shop", Name: "db",
	}.ClaimName(a.vmRequest("db", "pod1", calicoConf()).Network, a.vmRequest("db", "pod1", calicoConf()).IfName))
	writes := func(addrs ...string) {
		t.Helper()
		o, err := a.config.Objects.Get(t.Context(), kind, key)
		if err != nil {
			t.Fatal(err)
		}
		next, err := o.Edited(func(fields map[string]any) error {
			fields["status"] = map[string]any{"addresses": addrs, "node": "b"}
			return nil
		})
		if err == nil {
			_, err = a.config.Objects.CompareAndSwapStatus(t.Context(), kind, o.Version, next)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	signed := func() bool {
		t.Helper()
		o, err := a.config.Objects.Get(t.Context(), kind, key)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(o.Raw), `"node":"a"`)
	}
	takes := func() {
		t.Helper()
		if err := a.takes("db", "pod1", words...); err != nil {
			t.Fatal(err)
		}
	}
	writes(words...)
	if takes(); !signed() {
		t.Fatal("the node does not sign what is true")
	}
	writes(append(slices.Clone(words), neighbor(four).String())...)
	if takes(); signed() {
		t.Error("the node signs that an address of its own is the claim's")
	}
	writes(words[0], neighbor(six).String())
	a.del("pod1")
	if said := a.runs("db", "pod2", false, `"assign_ipv4":"true"`, `"assign_ipv6":"false"`); signed() ||
		!strings.Contains(said, "did not allocate to it") {
		t.Errorf("the node signs what it did not allocate: %s", said)
	}
}

// neighbor is another address of the same block.
func neighbor(a netip.Addr) netip.Addr {
	b := a.AsSlice()
	b[len(b)-1] ^= 1
	out, _ := netip.AddrFromSlice(b)
	return out
}
