// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"fmt"
	"testing"

	"github.com/weft-net/weft/internal/cluster/store"
)

// TestDefaultNamespace: a namespaced object whose manifest names no namespace is in "default", as with kubectl; a
// cluster-wide one is in none, and a kind that weft does not know is kept as it is.
func TestDefaultNamespace(t *testing.T) {
	kind := func(k store.Kind) string { return k.Group + "/" + k.Version + " " + k.Kind }
	for _, c := range []struct{ kind, namespace, want string }{
		{"v1 Pod", "", "default"},
		{"v1 Service", "", "default"},
		{"v1 ConfigMap", "", "default"},
		{"apps/v1 Deployment", "", "default"},
		{kind(store.NetworkPolicies()), "", "default"},
		{kind(store.NetworkPolicies()), "shop", "shop"},
		{kind(store.MultiNetworkPolicies()), "", "default"},
		{kind(store.NetworkAttachments()), "", "default"},
		{kind(store.AddressClaims()), "", "default"},
		{kind(store.AddressMoves()), "", "default"},
		{kind(store.IPAMClaims()), "", "default"},
		{kind(store.WhereaboutsPools()), "", "default"},
		{kind(store.VirtualMachines()), "", "default"},
		{kind(store.VirtualMachineInstances()), "", "default"},
		{"kubevirt.io/v1 VirtualMachineInstanceMigration", "", "default"},
		{"crd.projectcalico.org/v1 NetworkPolicy", "", "default"},
		{"projectcalico.org/v3 NetworkSet", "", "default"},
		{"v1 Node", "", ""},
		{"v1 Namespace", "", ""},
		{kind(store.AddressPools()), "", ""},
		{kind(store.AddressBlocks()), "", ""},
		{kind(store.NodeEndpoints()), "", ""},
		{kind(store.FlowListeners()), "", ""},
		{kind(store.ClusterNetworkPolicies()), "", ""},
		{"crd.projectcalico.org/v1 GlobalNetworkPolicy", "", ""},
		{"networking.k8s.io/v1 IngressClass", "", ""},
		{"example.org/v1 Thing", "", ""},
		{"example.org/v1 Thing", "shop", "shop"},
	} {
		var apiVersion, name string
		if _, err := fmt.Sscanf(c.kind, "%s %s", &apiVersion, &name); err != nil {
			t.Fatal(err)
		}
		spec := `{}`
		if name == "NetworkAttachmentDefinition" {
			spec = `{"config":"{\"cniVersion\":\"1.0.0\",\"name\":\"n\",\"type\":\"bridge\"}"}`
		}
		o, err := store.NewObject(
			fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"name":"n1","namespace":%q},"spec":%s}`, apiVersion, name,
				c.namespace, spec),
		)
		if err != nil {
			t.Errorf("%s: %v", c.kind, err)
			continue
		}
		if o.Key.Namespace != c.want {
			t.Errorf("%s with namespace %q is in %q, want %q", c.kind, c.namespace, o.Key.Namespace, c.want)
		}
	}
}
