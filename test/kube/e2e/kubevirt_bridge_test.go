// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// TestKubeVirtBridge: weft connects the pods of each node by a bridge (network.design: bridge), with addresses of the node's
// own prefixes. VMs have what they have on routed pods, but for addresses that can move: a VM that must take its own along
// does not migrate, and continues where it is.
func TestKubeVirtBridge(t *testing.T) {
	c, kept := kubeVirt(t, "e2ekvb")
	if !kept {
		c.Cluster = newCluster(t, c.name, "--nodes", "3", "--cni", "weft", "--dual-stack")
		encapsulation := strings.ReplaceAll(backend(), "none", "host-gw")
		c.configure(t, "  design: bridge\n  encapsulation: "+encapsulation+"\n")
		c.routePrefixes(t)
		c.installKubeVirt(t)
	}
	for _, b := range []struct{ binding, yaml string }{
		{"masquerade", "masquerade: {}"}, {"weft-direct", "binding: {name: weft-direct}"},
	} {
		t.Run(b.binding, func(t *testing.T) { c.testBridgedVM(t, b.binding, b.yaml) })
	}
	t.Run("refused", c.testRefusedVMs)
}

// routePrefixes adds routes to the nodes' prefixes to the control plane's host, which is no node and calls webhooks in pods.
func (c kubeVirtCluster) routePrefixes(t *testing.T) {
	t.Helper()
	for _, node := range c.nodes(t) {
		via := strings.Fields(c.nodeIP(t, node))
		for i, prefix := range c.prefixes(t, node) {
			c.must(t, "exec", "control", "ip", "route", "replace", prefix.String(), "via", via[i])
		}
	}
}

// prefixes returns a node's prefixes of pods, the one of IPv4 first.
func (c kubeVirtCluster) prefixes(t *testing.T, node string) (all []netip.Prefix) {
	t.Helper()
	for _, text := range strings.Fields(c.kubectl(t, "get", "node", node, "-o", "jsonpath={.spec.podCIDRs[0]} {.spec.podCIDRs[1]}")) {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

// testBridgedVM boots a VM on the nodes' bridges, and tests its lease, its connections, a policy, a hostile guest, a
// migration and a restart.
func (c kubeVirtCluster) testBridgedVM(t *testing.T, binding, yaml string) {
	ns := c.namespace(t)
	pods := c.rollOut(t, ns, "web", 3)
	c.apply(t, ns, vmManifest("vm", yaml))
	v := c.running(t, ns, "")
	lease := c.awaitLease(t, ns)
	t.Logf("%s: %s", binding, lease)
	addrs := v.Status.Interfaces[0].IPAddresses
	c.hasPrefixesOf(t, v)
	if out := c.must(t, "exec", v.Status.NodeName, "ip", "-o", "link", "show", "master", "weft0"); !strings.Contains(out, "veth") {
		t.Errorf("%s has no pod on its bridge: %s", v.Status.NodeName, out)
	}
	// The guest has the prefix of the bridge, and not a route to a single gateway, as behind routed pods.
	own := fmt.Sprintf(" %s/%d ", addrs[0], c.prefixes(t, v.Status.NodeName)[0].Bits())
	own6 := addrs[1] + "/128"
	if binding == "masquerade" {
		own, own6 = " 10.0.2.2/24 ", "fd10:0:2::2/128"
	}
	mtu := "mtu=1430"
	if backend() == "none" {
		mtu = "mtu=1500"
	}
	for _, want := range []string{own, mtu, " dns=" + clusterDNS + " "} {
		if !strings.Contains(lease, want) {
			t.Errorf("the guest has %q, want %q", lease, want)
		}
	}
	c.awaitIPv6(t, ns, binding, own6)
	reach := func(t *testing.T) {
		t.Helper()
		for _, p := range pods {
			c.reachBothWays(t, ns, p, addrs)
		}
	}
	t.Run("reach", reach)
	t.Run("service", func(t *testing.T) { c.testVMService(t, ns, pods) })
	t.Run("ends", func(t *testing.T) { c.testVMEnds(t, ns, binding, yaml, addrs) })
	t.Run("policy", func(t *testing.T) { c.testVMPolicy(t, ns, pods, addrs) })
	t.Run("hostile", func(t *testing.T) { c.testHostileGuest(t, ns, binding, addrs) })
	t.Run("migration", func(t *testing.T) {
		if binding == "masquerade" { // the guest's own address is KubeVirt's, the pod's is another one
			if phase := c.migrate(t, ns); phase != "Succeeded" {
				t.Fatalf("the migration has %s", phase)
			}
			v = c.running(t, ns, "")
			c.hasPrefixesOf(t, v)
			addrs = v.Status.Interfaces[0].IPAddresses
			reach(t)
			return
		}
		c.testNoMigration(t, ns, v)
		reach(t)
	})
	t.Run("restart", func(t *testing.T) {
		uid := c.kubectl(t, "get", "vmi", "vm", "-n", ns, "-o", "jsonpath={.metadata.uid}")
		c.must(t, "exec", "control", c.virtctl, "restart", "-n", ns, "vm")
		v := c.running(t, ns, uid)
		c.hasPrefixesOf(t, v)
		addrs = v.Status.Interfaces[0].IPAddresses
		c.awaitLease(t, ns)
		if binding != "masquerade" {
			own6 = addrs[1] + "/128"
		}
		c.awaitIPv6(t, ns, binding, own6)
		reach(t)
	})
}

// hasPrefixesOf: the VM has an address of each prefix of its node.
func (c kubeVirtCluster) hasPrefixesOf(t *testing.T, v vmi) {
	t.Helper()
	addrs := v.Status.Interfaces[0].IPAddresses
	if len(addrs) != 2 {
		t.Fatalf("the VM has %q, want an address of each family", addrs)
	}
	for i, prefix := range c.prefixes(t, v.Status.NodeName) {
		if a, err := netip.ParseAddr(addrs[i]); err != nil || !prefix.Contains(a) {
			t.Errorf("the VM's address %s on %s is not of %s", addrs[i], v.Status.NodeName, prefix)
		}
	}
}

// testNoMigration: the target's pod does not start, since no other node can have the addresses of the guest; an event says
// so. The VM continues, and of the canceled migration nothing is left.
func (c kubeVirtCluster) testNoMigration(t *testing.T, ns string, v vmi) {
	t.Helper()
	before := c.allAttachments(t)
	c.startMigration(t, ns)
	c.eventSays(t, ns, `ipam.type "host-local" cannot keep the addresses of virtual machine `+ns+`/vm`)
	c.must(t, "exec", "control", c.virtctl, "migrate-cancel", "-n", ns, "vm")
	eventually(t, vmTime, func() error {
		if got := c.allAttachments(t); got != before {
			return fmt.Errorf("the nodes have %s, before the migration they had %s", got, before)
		}
		return nil
	})
	if now := c.where(t, ns); now != v.Status.NodeName {
		t.Errorf("the VM is on %s, and was on %s", now, v.Status.NodeName)
	}
}
