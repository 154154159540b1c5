// SPDX-License-Identifier: Apache-2.0

package scale_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/nettest"
)

// made is the creation time of all objects.
const made = "2026-01-01T00:00:00Z"

// number is one of the pods of other nodes.
type number int

func (c *cluster) nodeOf(n number) int { return 1 + int(n)/c.podsPerNode() }
func (n number) name() string          { return fmt.Sprintf("pod-%06d", int(n)) }
func (n number) uid() string           { return fmt.Sprintf("uid-%06d", int(n)) }
func (n number) namespace() string     { return fmt.Sprintf("team-%d", int(n)%100) }
func (n number) addr() netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(1 + n>>16), byte(n >> 8), byte(n)})
}

func (n number) labels() map[string]string {
	l := map[string]string{
		"app": fmt.Sprintf("app-%d", int(n)%1000), "pod-template-hash": fmt.Sprintf("%08x", int(n)%3000),
	}
	if n%100 == 0 { // a peer of the local pods: one of a hundred
		l["tier"] = "front"
	}
	return l
}

// pod returns a Pod object.
func pod(namespace, name, uid, node string, labels map[string]string, addr string) fields {
	status := fields{
		"phase": "Running", "conditions": []fields{
			{"type": "Ready", "status": "True", "lastTransitionTime": made},
			{"type": "PodScheduled", "status": "True", "lastTransitionTime": made},
		},
	}
	if addr != "" {
		status["podIP"], status["podIPs"] = addr, []fields{{"ip": addr}}
	}
	return fields{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": fields{"namespace": namespace, "name": name, "uid": uid, "creationTimestamp": made, "labels": labels},
		"spec": fields{
			"nodeName": node, "restartPolicy": "Always", "serviceAccountName": "default", "dnsPolicy": "ClusterFirst",
			"terminationGracePeriodSeconds": 30,
			"containers": []fields{
				{
					"name": "c", "image": "registry.example/app:1.0",
					"ports": []fields{{"name": "http", "containerPort": 8080, "protocol": "TCP"}},
				},
			},
		},
		"status": status,
	}
}

// published returns the object that a node's agent publishes about its pods.
func (c *cluster) published(node int, more ...number) fields {
	var all []fields
	for i := range c.podsPerNode() {
		more = append(more, number((node-1)*c.podsPerNode()+i))
	}
	for _, n := range more {
		all = append(all, fields{
			"namespace": n.namespace(), "pod": n.name(), "uid": n.uid(), "interface": "eth0",
			"addresses": []string{n.addr().String()},
		})
	}
	name := fmt.Sprint("n", node)
	return fields{
		"apiVersion": "weft.dev/v1alpha1", "kind": "NodeEndpoints",
		"metadata": fields{"name": name, "uid": "uid-" + name, "creationTimestamp": made, "generation": 1},
		"spec":     fields{"endpoints": all},
	}
}

// createLocal creates the namespaces, the local node with its pods, and their policies.
func (c *cluster) createLocal(yield func(string, any) bool) {
	for _, ns := range append(teams(), "shop") {
		o := fields{
			"apiVersion": "v1", "kind": "Namespace", "metadata": fields{
				"name": ns, "uid": "uid-" + ns, "creationTimestamp": made,
				"labels": fields{"kubernetes.io/metadata.name": ns, "kind": ns[:4]},
			}, "status": fields{"phase": "Active"},
		}
		if !yield("namespaces/"+ns, o) {
			return
		}
	}
	if !yield("minions/n0", node(0)) {
		return
	}
	for i := range locals {
		name := fmt.Sprint("local-", i)
		if !yield("pods/shop/"+name,
			pod("shop", name, "uid-"+name, "n0", map[string]string{"app": "shop", "own": name}, "")) {
			return
		}
	}
	for i := range 20 {
		name := fmt.Sprint("policy-", i)
		subject := fields{"app": "shop"}
		if i > 0 {
			subject["own"] = fmt.Sprint("local-", i%locals)
		}
		peer := fields{
			"namespaceSelector": fields{"matchLabels": fields{"kind": "team"}},
			"podSelector":       fields{"matchLabels": fields{"tier": "front"}},
		}
		if i > 0 {
			peer = fields{
				"namespaceSelector": fields{"matchLabels": fields{"kubernetes.io/metadata.name": fmt.Sprint("team-", i)}},
			}
		}
		o := fields{
			"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
			"metadata": fields{
				"namespace": "shop", "name": name, "uid": "uid-" + name, "creationTimestamp": made, "generation": 1,
			},
			"spec": fields{
				"podSelector": fields{"matchLabels": subject}, "policyTypes": []string{"Ingress"},
				"ingress": []fields{{"from": []fields{peer}, "ports": []fields{{"port": 8080, "protocol": "TCP"}}}},
			},
		}
		if !yield("networkpolicies/shop/"+name, o) {
			return
		}
	}
}

// createRemote creates all other objects.
func (c *cluster) createRemote(yield func(string, any) bool) {
	for i := 1; i <= c.nodes; i++ {
		if !yield(fmt.Sprint("minions/n", i), node(i)) || !yield(fmt.Sprint("weft.dev/nodeendpoints/n", i), c.published(i)) {
			return
		}
	}
	for n := range number(c.pods) {
		if !yield("pods/"+n.namespace()+"/"+n.name(),
			pod(n.namespace(), n.name(), n.uid(), fmt.Sprint("n", c.nodeOf(n)), n.labels(), n.addr().String())) {
			return
		}
	}
}

func teams() []string {
	var out []string
	for i := range 100 {
		out = append(out, fmt.Sprint("team-", i))
	}
	return out
}

func node(i int) fields {
	name, addr := fmt.Sprint("n", i), netip.AddrFrom4([4]byte{10, 200, byte(i >> 8), byte(i)}).String()
	if i == 0 {
		addr = "192.168.77.10"
	}
	return fields{
		"apiVersion": "v1", "kind": "Node", "metadata": fields{
			"name": name, "uid": "uid-" + name, "creationTimestamp": made, "labels": fields{"kubernetes.io/hostname": name},
		},
		"spec": fields{}, "status": fields{"addresses": []fields{{"type": "InternalIP", "address": addr}}},
	}
}

// awaitServer waits until the server lists all pods.
func (c *cluster) awaitServer(want int) {
	c.t.Helper()
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		var list struct {
			Metadata struct{ RemainingItemCount int }
			Items    []struct{}
		}
		if err := json.Unmarshal(c.Do(http.MethodGet, "/api/v1/pods?limit=1", nil), &list); err != nil {
			c.t.Fatal(err)
		}
		if list.Metadata.RemainingItemCount+len(list.Items) >= want {
			return
		}
		if time.Now().After(end) {
			c.t.Fatalf("the server lists %d pods, want %d", list.Metadata.RemainingItemCount+len(list.Items), want)
		}
	}
}

func (c *cluster) get(path string, into any) {
	c.t.Helper()
	if err := json.Unmarshal(c.Do(http.MethodGet, path, nil), into); err != nil {
		c.t.Fatal(err)
	}
}

// awaitKernel waits until the node's nftables contain an address.
func (c *cluster) awaitKernel(a netip.Addr) {
	c.t.Helper()
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		out, _ := nettest.Try(c.node, "nft", "list", "table", "inet", "weft-policy")
		if strings.Contains(out, a.String()) {
			return
		}
		if time.Now().After(end) {
			c.t.Fatalf("%s is not in the kernel: %s", a, c.log())
		}
	}
}
