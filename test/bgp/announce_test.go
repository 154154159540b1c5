// SPDX-License-Identifier: Apache-2.0

package bgp_test

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/apitest"
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

// A node that is cut off from the API server answers for its addresses until another one announces them, and not after that:
// the client always gets the new one. When it is back and ready it has them again.
func TestAnnounceCutOff(t *testing.T) {
	nettest.EndToEnd(t)
	sw := nettest.NS(t, "switch")
	nettest.Run(t, sw, "ip", "link", "add", "br0", "type", "bridge")
	nettest.Run(t, sw, "ip", "addr", "add", "10.9.0.100/24", "dev", "br0")
	nettest.Run(t, sw, "ip", "link", "set", "br0", "up")
	server := apitest.Start(t, sw, netip.MustParseAddr("10.9.0.100"))
	files, _ := filepath.Glob("../../deploy/crds/weft.dev_*.yaml")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		server.DefineKind(text)
	}
	type fields = map[string]any
	a := announcers{t: t, nodes: map[string]*node{}, client: newNode(t, "client")}
	attach(t, sw, a.client.ns, "p9", "10.9.0.9/24 fd09::9/64")
	proxies := map[string]*apitest.Proxy{}
	ready := func(name, status string) {
		server.Do(http.MethodPatch, "/api/v1/nodes/"+name+"/status", fields{"status": fields{
			"conditions": []fields{{"type": "Ready", "status": status}},
		}})
	}
	names := []string{"n1", "n2"}
	for i, name := range names {
		n := newNode(t, name)
		n.withoutBGP = true
		attach(t, sw, n.ns, fmt.Sprintf("p%d", i), fmt.Sprintf("10.9.0.%d/24 fd09::%d/64", i+1, i+1))
		proxies[name] = server.Proxy()
		n.kubeconfig = server.Kubeconfig(proxies[name].URL, "")
		a.nodes[name] = n
		cidr := fmt.Sprintf("10.244.%d.0/24", i+1)
		server.Do(http.MethodPost, "/api/v1/nodes", fields{
			"metadata": fields{"name": name}, "spec": fields{"podCIDR": cidr, "podCIDRs": []string{cidr}},
			"status": fields{"addresses": []fields{
				{"type": "InternalIP", "address": fmt.Sprintf("10.9.0.%d", i+1)}, {"type": "InternalIP", "address": fmt.Sprintf("fd09::%d", i+1)},
			}},
		})
		ready(name, "True")
	}
	const four, six = "10.9.0.70", "fd09::1:70"
	server.Do(http.MethodPost, "/apis/weft.dev/v1alpha1/addresspools", fields{
		"apiVersion": "weft.dev/v1alpha1", "kind": "AddressPool", "metadata": fields{"name": "lan"}, "spec": fields{
			"assignmentMode": "Automatic", "allowedUses": []string{"LoadBalancer"},
			"regions": []fields{{"cidr": "10.9.0.64/26"}, {"cidr": "fd09::1:0/112"}},
		},
	})
	server.Do(http.MethodPost, "/api/v1/namespaces/default/services", fields{
		"metadata": fields{"name": "web"},
		"spec":     fields{"type": "LoadBalancer", "ports": []fields{{"port": 80}}},
	})
	server.Do(http.MethodPatch, "/api/v1/namespaces/default/services/web/status", fields{"status": fields{
		"loadBalancer": fields{"ingress": []fields{{"ip": four}, {"ip": six}}},
	}})
	for _, n := range a.nodes {
		n.startAgent("loadBalancer: {assignIPs: RequestedServicesOnly}\n")
	}
	for _, addr := range []string{four, six} {
		old := serviceannounce.Elect(netip.MustParseAddr(addr), names)
		other := names[0]
		if old == other {
			other = names[1]
		}
		a.leadsTo(addr, old)
		proxies[old].Refuse(func(*http.Request) int { return http.StatusServiceUnavailable })
		proxies[old].CloseConnections()
		for range 10 {
			a.answersOnly(addr, old)
		}
		ready(old, "Unknown")
		a.leadsTo(addr, other)
		eventually(t, old+" yields the address", func() bool {
			return strings.Contains(a.nodes[old].agent.out.String(), "address="+addr)
		}, func() string { return a.nodes[old].agent.out.String() })
		for range 10 {
			a.answersOnly(addr, other)
		}
		ready(old, "True")
		a.leadsTo(addr, "") // the other node has heard of it, and the old one cannot know yet
		proxies[old].Refuse(nil)
		a.leadsTo(addr, old)
		for range 10 {
			a.answersOnly(addr, old)
		}
	}
}

// answersOnly asks for the neighbor with an address, and expects the answer of a node, and no other one.
func (a announcers) answersOnly(addr, name string) {
	a.t.Helper()
	nettest.Run(a.t, a.client.ns, "ip", "neigh", "flush", "to", addr)
	got := ""
	eventually(a.t, "a node answers for "+addr, func() bool {
		err := a.client.ns.Do(func() error {
			c, err := net.Dial("udp", net.JoinHostPort(addr, "9"))
			if err == nil {
				_, _ = c.Write([]byte("x"))
				err = c.Close()
			}
			return err
		})
		if err != nil {
			a.t.Fatal(err)
		}
		got = a.neighbor(addr)
		return got != ""
	}, func() string { return "" })
	if got != name {
		a.t.Fatalf("%s answers for %s, not %s", got, addr, name)
	}
}
