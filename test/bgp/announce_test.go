// SPDX-License-Identifier: Apache-2.0

package bgp_test

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/serviceannounce"
)

// announcers are nodes without BGP on one switch with a client, which all have the same manifests.
type announcers struct {
	t      *testing.T
	nodes  map[string]*node
	client *node
}

// put writes a manifest for all nodes.
func (a announcers) put(file, text string) {
	a.t.Helper()
	for _, n := range a.nodes {
		n.put(file, text)
	}
}

// mac is the MAC address of a node's link.
func (n *node) mac() string {
	n.t.Helper()
	_, rest, _ := strings.Cut(nettest.Run(n.t, n.ns, "ip", "-o", "link", "show", "eth0"), "link/ether ")
	mac, _, _ := strings.Cut(rest, " ")
	return mac
}

// ask connects to an address from the client, and returns the node that the kernel there has as its neighbor, empty if it
// has none.
func (a announcers) ask(addr string) string {
	_ = a.client.ns.Do(func() error {
		d := net.Dialer{Timeout: time.Second}
		c, err := d.Dial("tcp", net.JoinHostPort(addr, "80"))
		if err == nil {
			_ = c.Close()
		}
		return nil
	})
	return a.neighbor(addr)
}

func (a announcers) neighbor(addr string) string {
	out, _ := nettest.Try(a.client.ns, "ip", "neigh", "show", "to", addr)
	for name, n := range a.nodes {
		if strings.Contains(out, n.mac()) {
			return name
		}
	}
	return ""
}

func (a announcers) leadsTo(addr, name string) {
	a.t.Helper()
	eventually(a.t, fmt.Sprintf("%s is announced by %q", addr, name), func() bool {
		if name == "" { // what the client has learned before stays in its kernel
			nettest.Run(a.t, a.client.ns, "ip", "neigh", "flush", "to", addr)
		}
		return a.ask(addr) == name
	}, func() string {
		out, _ := nettest.Try(a.client.ns, "ip", "neigh")
		return a.ask(addr) + "\n" + out
	})
}

// Without BGP one ready node with an endpoint answers for each address of a load balancer, of both families; another one
// takes it over when the node is not ready any more, and clients that know the old one use the new one.
func TestAnnounceByARP(t *testing.T) {
	sw := nettest.NS(t, "switch")
	nettest.Run(t, sw, "ip", "link", "add", "br0", "type", "bridge")
	nettest.Run(t, sw, "ip", "link", "set", "br0", "up")
	a := announcers{t: t, nodes: map[string]*node{}, client: newNode(t, "client")}
	attach(t, sw, a.client.ns, "p9", "10.9.0.9/24 fd09::9/64")
	ready := func(name, status string) string {
		i := strings.TrimPrefix(name, "n")
		return nodeManifest(name, "", []string{"10.244." + i + ".0/24"}, []string{"10.9.0." + i, "fd09::" + i}) +
			fmt.Sprintf("  conditions: [{type: Ready, status: %q}]\n", status)
	}
	names := []string{"n1", "n2", "n3"}
	for i, name := range names {
		n := newNode(t, name)
		n.withoutBGP = true
		attach(t, sw, n.ns, fmt.Sprintf("p%d", i), fmt.Sprintf("10.9.0.%d/24 fd09::%d/64", i+1, i+1))
		a.nodes[name] = n
	}
	for _, name := range names {
		a.put(name+".yaml", ready(name, "True"))
	}
	a.put("pool.yaml", `apiVersion: weft.dev/v1alpha1
kind: AddressPool
metadata: {name: lan}
spec: {assignmentMode: Automatic, allowedUses: [LoadBalancer], regions: [{cidr: 10.9.0.64/26}, {cidr: "fd09::1:0/112"}]}
`)
	service := `apiVersion: v1
kind: Service
metadata: {name: %s, namespace: shop}
spec: {type: LoadBalancer, externalTrafficPolicy: %s, ipFamilies: [IPv4, IPv6]}
status: {loadBalancer: {ingress: [{ip: %s}, {ip: "%s"}]}}
`
	const four, six, local, other = "10.9.0.70", "fd09::1:70", "10.9.0.71", "10.9.0.20"
	a.put("cluster.yaml", fmt.Sprintf(service, "cluster", "Cluster", four, six))
	a.put("local.yaml", fmt.Sprintf(service, "local", "Local", local, "fd09::1:71"))
	a.put("other.yaml", fmt.Sprintf(service, "other", "Cluster", other, "fd09::20")) // in no pool
	endpoint := func(node string, ready bool) {
		a.put("slice.yaml", fmt.Sprintf(`apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: local-abc, namespace: shop, labels: {kubernetes.io/service-name: local}}
addressType: IPv4
endpoints: [{addresses: [10.244.1.7], nodeName: %s, conditions: {ready: %t}}]
`, node, ready))
	}
	endpoint("n2", true)
	for _, n := range a.nodes {
		n.startAgent("")
	}
	elect := func(addr string, nodes ...string) string {
		return serviceannounce.Elect(netip.MustParseAddr(addr), nodes)
	}
	a.leadsTo(four, elect(four, names...))
	a.leadsTo(six, elect(six, names...))
	a.leadsTo(local, "n2")
	if got := a.ask(other); got != "" {
		t.Errorf("%s announces an address that is not of weft's pools", got)
	}

	// The endpoint moves; then there is none.
	endpoint("n3", true)
	a.leadsTo(local, "n3")
	endpoint("n3", false)
	a.leadsTo(local, "")

	// The node is lost. The client's entry is changed by the announcement: nothing asks for it.
	first := elect(four, names...)
	var left []string
	for _, name := range names {
		if name != first {
			left = append(left, name)
		}
	}
	a.leadsTo(four, first)
	a.nodes[first].agent.kill()
	a.put(first+".yaml", ready(first, "Unknown"))
	eventually(t, "the client uses the new node", func() bool { return a.neighbor(four) == elect(four, left...) }, func() string {
		out, _ := nettest.Try(a.client.ns, "ip", "neigh")
		return out
	})
	a.leadsTo(six, elect(six, left...))
}
