// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// testVMService: virtctl exposes the VM. Pods on each node reach it by the Service's addresses of both families, and a host
// outside of the cluster by a node's port.
func (c kubeVirtCluster) testVMService(t *testing.T, ns string, pods []Pod) {
	c.must(t, "exec", "control", c.virtctl, "expose", "vmi", "vm", "-n", ns, "--name", "exposed", "--port", "70", "--target-port",
		fmt.Sprint(answerPort), "--type", "NodePort", "--ip-family-policy", "RequireDualStack")
	defer c.kubectl(t, "-n", ns, "delete", "service", "exposed")
	var svc struct {
		Spec struct {
			ClusterIPs []string
			Ports      []struct{ NodePort int }
		}
	}
	c.get(t, &svc, "service", "exposed", "-n", ns)
	if len(svc.Spec.ClusterIPs) != 2 || len(svc.Spec.Ports) != 1 {
		t.Fatalf("the Service is %+v, want an address of each family", svc)
	}
	ask := func(host string, port int) string { return fmt.Sprintf("echo hello | nc -w 3 %s %d", host, port) }
	for _, addr := range svc.Spec.ClusterIPs {
		for _, p := range pods {
			eventually(t, time.Minute, func() error {
				out, err := c.try("kubectl", "-n", ns, "exec", p.Metadata.Name, "--", "sh", "-c", ask(addr, 70))
				return guestAnswer(out, err)
			})
		}
	}
	for _, node := range c.nodes(t) {
		for _, addr := range strings.Fields(c.nodeIP(t, node)) {
			eventually(t, time.Minute, func() error {
				out, err := c.try("exec", "control", "sh", "-c", ask(addr, svc.Spec.Ports[0].NodePort))
				return guestAnswer(out, err)
			})
		}
	}
}

// guestAnswer returns an error if the output of a client is not the guest's reply to "hello".
func guestAnswer(out string, err error) error {
	if err == nil && strings.TrimSpace(out) != "guest hello" {
		err = fmt.Errorf("the guest replies %q", out)
	}
	return err
}

// testVMNetworks: a VM with masquerade has two further networks of NetworkAttachmentDefinitions with weft-direct, a macvlan
// over the nodes and a bridge: KubeVirt's DHCP servers and weft's are in one pod. It reaches a pod on another node by the
// first, and keeps its address there when it migrates. A MultiNetworkPolicy limits who reaches it by the other.
func (c kubeVirtCluster) testVMNetworks(t *testing.T) {
	ns := c.namespace(t)
	c.apply(t, ns, moreNetworks)
	c.apply(t, ns, podOn("peer", "node3", "wide"))
	c.apply(t, ns, vmWith("vm",
		"{name: default, masquerade: {}}, {name: blue, macAddress: '02:00:00:00:07:02', binding: {name: weft-direct}}, {name: green, binding: {name: weft-direct}}",
		"{name: default, pod: {}}, {name: blue, multus: {networkName: wide}}, {name: green, multus: {networkName: local}}"))
	v := c.running(t, ns, "")
	c.awaitLease(t, ns)
	peer := c.allReadyNamed(t, ns, "peer").networks(t)[1].IPs[0]
	facts := c.guestHas(t, ns, "ADDR eth0 inet6 fd10:0:2::2/128", "LINK eth1 mac=02:00:00:00:07:02 ", "ADDR eth1 inet 10.37.132.", "ADDR eth2 inet 10.38.0.")
	t.Logf("the guest has %s; the VM's status %+v", facts, v.Status.Interfaces)
	c.guestReaches(t, ns, "eth1", peer)
	c.guestReaches(t, ns, "eth2", "10.38.0.1")
	c.testFurtherPolicy(t, ns, v.Status.NodeName, v.Status.Interfaces[2].IPAddress)
	if phase := c.migrate(t, ns); phase != "Succeeded" {
		t.Fatalf("the migration has %s: %s", phase, c.kubectl(t, "-n", ns, "get", "events"))
	}
	c.guestReaches(t, ns, "eth1", peer) // the other network is one of each node
	after, err := c.guest(ns, "vm", "facts")
	if err != nil || after != facts {
		t.Errorf("the guest had %s and has after the migration %s (%v)", facts, after, err)
	}
}

// multiNetworkPolicies is the kind's definition, without its schema.
const multiNetworkPolicies = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: multi-networkpolicies.k8s.cni.cncf.io}
spec:
  group: k8s.cni.cncf.io
  scope: Namespaced
  names: {kind: MultiNetworkPolicy, plural: multi-networkpolicies, singular: multi-networkpolicy}
  versions: [{name: v1beta1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`

// friendsOnLocal is a policy by which pods with a label reach the VM on its further network.
const friendsOnLocal = `
apiVersion: k8s.cni.cncf.io/v1beta1
kind: MultiNetworkPolicy
metadata: {name: vm, annotations: {k8s.v1.cni.cncf.io/policy-for: local}}
spec:
  podSelector: {matchLabels: {app: vm}}
  policyTypes: [Ingress]
  ingress: [{from: [{podSelector: {matchLabels: {friend: "yes"}}}]}]
`

// testFurtherPolicy: a MultiNetworkPolicy that selects the VM by its label limits which pods on the node reach it by its
// address on the network of the node's bridge.
func (c kubeVirtCluster) testFurtherPolicy(t *testing.T, ns, node, addr string) {
	t.Helper()
	c.apply(t, ns, multiNetworkPolicies)
	c.kubectl(t, "wait", "--for=condition=Established", "crd/multi-networkpolicies.k8s.cni.cncf.io", "--timeout=60s")
	c.apply(t, ns, podOn("friend", node, "local")+podOn("other", node, "local"))
	c.kubectl(t, "-n", ns, "label", "pod", "friend", "friend=yes")
	friend, other := c.allReadyNamed(t, ns, "friend"), c.allReadyNamed(t, ns, "other")
	eventually(t, vmTime, func() error { return errors.Join(c.askGuest(ns, other, addr), c.askGuest(ns, friend, addr)) })
	c.apply(t, ns, friendsOnLocal)
	c.enforced(t, ns, friend, other, addr)
	c.kubectl(t, "-n", ns, "delete", "multi-networkpolicies", "vm")
	eventually(t, time.Minute, func() error { return c.askGuest(ns, other, addr) })
}

// ipv6Network is a network within each node, of IPv6 only.
const ipv6Network = `
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: six}
spec:
  config: '{"cniVersion": "1.0.0", "type": "bridge", "bridge": "e2e6", "isGateway": true,
    "ipam": {"type": "host-local", "subnet": "fd38::/64"}}'
`

// testIPv6Network: a VM has a further network of IPv6 only with weft-direct. It gets its address by DHCPv6, and reaches the
// gateway and a pod there, which reaches it.
func (c kubeVirtCluster) testIPv6Network(t *testing.T) {
	ns := c.namespace(t)
	c.apply(t, ns, ipv6Network)
	c.apply(t, ns, vmWith("vm", "{name: default, masquerade: {}}, {name: blue, binding: {name: weft-direct}}",
		"{name: default, pod: {}}, {name: blue, multus: {networkName: six}}"))
	v := c.running(t, ns, "")
	c.awaitLease(t, ns)
	c.guestHas(t, ns, "ADDR eth1 inet6 fd38::")
	c.guestReaches(t, ns, "eth1", "fd38::1")
	c.apply(t, ns, podOn("peer", v.Status.NodeName, "six"))
	peer := c.allReadyNamed(t, ns, "peer")
	c.guestReaches(t, ns, "eth1", peer.networks(t)[1].IPs[0])
	eventually(t, vmTime, func() error { return c.askGuest(ns, peer, v.Status.Interfaces[1].IPAddress) })
}

// allReadyNamed waits until a pod is ready and has its networks' status.
func (c kubeVirtCluster) allReadyNamed(t *testing.T, ns, name string) (p Pod) {
	t.Helper()
	eventually(t, 2*time.Minute, func() error {
		out, err := c.try("kubectl", "-n", ns, "get", "pod", name, "-o", "json")
		if err != nil {
			return err
		}
		p = Pod{}
		if err := json.Unmarshal([]byte(out), &p); err != nil {
			return err
		}
		if !p.ready() || p.Metadata.Annotations["k8s.v1.cni.cncf.io/network-status"] == "" {
			return fmt.Errorf("pod %s: %+v", name, p.Status)
		}
		return nil
	})
	return p
}
