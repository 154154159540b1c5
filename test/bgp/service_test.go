// SPDX-License-Identifier: Apache-2.0

package bgp_test

import (
	"fmt"
	"testing"
	"time"
)

// An address of a Service with externalTrafficPolicy Local is announced by a node while an endpoint is ready there, and the
// end of the agent does not withdraw it; the ranges are announced by each node.
func TestServices(t *testing.T) {
	n := newNode(t, "n1")
	tor := router(t, n)
	n.put("node.yaml", nodeManifest("n1", "", []string{"10.244.1.0/24"}, []string{"10.9.0.1"}))
	n.put("config.yaml", `apiVersion: projectcalico.org/v3
kind: BGPConfiguration
metadata: {name: default}
spec:
  nodeToNodeMeshEnabled: false
  serviceClusterIPs: [{cidr: 10.96.0.0/16}]
  serviceExternalIPs: [{cidr: 192.0.2.0/24}]
  serviceLoadBalancerIPs: [{cidr: 198.51.100.7/32}]
`)
	n.put("peer.yaml", peerTor)
	n.put("pool.yaml", `apiVersion: weft.dev/v1alpha1
kind: AddressPool
metadata: {name: services}
spec: {assignmentMode: Automatic, allowedUses: [LoadBalancer], regions: [{cidr: 198.51.100.0/24}]}
`)
	service := `apiVersion: v1
kind: Service
metadata: {name: %s, namespace: shop}
spec: {type: LoadBalancer, clusterIP: %s, clusterIPs: [%[2]s], externalIPs: [%s], externalTrafficPolicy: %s}
status: {loadBalancer: {ingress: [{ip: %s}]}}
`
	n.put("local.yaml", fmt.Sprintf(service, "local", "10.96.0.10", "192.0.2.10", "Local", "198.51.100.99"))
	n.put("cluster.yaml", fmt.Sprintf(service, "cluster", "10.96.0.11", "192.0.2.11", "Cluster", "198.51.100.7"))
	endpoint := func(service, node string, ready bool) {
		n.put("slice-"+service+".yaml", fmt.Sprintf(`apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-abc, namespace: shop, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
endpoints: [{addresses: [10.244.1.7], nodeName: %s, conditions: {ready: %t}}]
`, service, node, ready))
	}
	endpoint("local", "n1", true)
	endpoint("cluster", "n2", true)
	b := startBird(t, tor, birdToN1)
	n.startSpeaker()
	n.startAgent("")
	for _, p := range []string{"10.96.0.0/16", "192.0.2.0/24", "10.96.0.10/32", "192.0.2.10/32", "198.51.100.7/32"} {
		b.hears(p, "via 10.9.0.1", true)
	}
	for _, p := range []string{"10.96.0.11/32", "192.0.2.11/32", "198.51.100.99/32"} {
		b.hears(p, "via 10.9.0.1", false)
	}

	// The route is never withdrawn by an agent that is new: BIRD's time of it stays, but for the rounding of BIRD's clocks.
	// A speaker may announce a route twice when the session is new.
	since := b.since("10.96.0.10/32")
	for time.Sleep(time.Second); b.since("10.96.0.10/32").Sub(since) > clocks; time.Sleep(time.Second) {
		since = b.since("10.96.0.10/32")
	}
	n.agent.kill()
	n.startAgent("")
	endpoint("cluster", "n2", false) // by which the new agent has announced
	b.hears("198.51.100.7/32", "via 10.9.0.1", false)
	if now := b.since("10.96.0.10/32"); now.Sub(since) > clocks {
		t.Errorf("the address of the Service was withdrawn: its route is of %s, then of %s", since, now)
	}

	// An endpoint that is not ready, and one on another node.
	endpoint("local", "n1", false)
	b.hears("10.96.0.10/32", "via 10.9.0.1", false)
	endpoint("local", "n1", true)
	b.hears("10.96.0.10/32", "via 10.9.0.1", true)
	endpoint("local", "n2", true)
	b.hears("10.96.0.10/32", "via 10.9.0.1", false)
	b.hears("192.0.2.10/32", "via 10.9.0.1", false)
	b.hears("10.96.0.0/16", "via 10.9.0.1", true)
}
