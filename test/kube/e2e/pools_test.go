// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestPools: a cluster that allocates from the nodes' prefixes is switched to pools. Pods are routed before and after,
// existing pods keep working, and old and new pods and nodes reach each other. Two pools: one with VXLAN, and one
// without a tunnel for a namespace that it selects.
func TestPools(t *testing.T) {
	weft(t)
	c := newCluster(t, "e2epl", "--cni", "weft", "--no-dns")
	ns := c.namespace(t)
	old := c.rollOut(t, ns, "old", 2)
	for _, node := range c.nodes(t) {
		out := c.must(t, "exec", node, "sh", "-c", "ip -o link show type bridge; ip route show proto 119")
		if !strings.Contains(out, " dev cali") || strings.Contains(out, "<") {
			t.Errorf("%s does not route its pods: %s", node, out)
		}
	}
	c.kubectl(t, "label", "namespace", ns, "tier=gold")
	plain := ns + "-plain"
	c.kubectl(t, "create", "namespace", plain)
	c.switchToPools(t)
	c.apply(t, ns, deployment("tunneled", 2))
	pods := c.allReady(t, ns, 4, time.Minute) // with the existing pods unchanged
	for _, p := range old {
		if !slices.ContainsFunc(pods, func(o Pod) bool {
			return o.Metadata.UID == p.Metadata.UID && o.Status.PodIP == p.Status.PodIP
		}) {
			t.Errorf("pod %s has changed: %+v", p.Metadata.Name, pods)
		}
	}
	c.apply(t, plain, deployment("plain", 2))
	pods = append(pods, c.allReady(t, plain, 2, time.Minute)...)
	in := map[string]netip.Prefix{
		"old": netip.MustParsePrefix("10.244.0.0/16"), "tunneled": netip.MustParsePrefix("10.77.0.0/20"),
		"plain": netip.MustParsePrefix("10.78.0.0/24"),
	}
	for _, p := range pods {
		kind, _, _ := strings.Cut(p.Metadata.Name, "-")
		if a, err := netip.ParseAddr(p.Status.PodIP); err != nil || !in[kind].Contains(a) {
			t.Errorf("pod %s has %s, want one of %s", p.Metadata.Name, p.Status.PodIP, in[kind])
		}
		// The external host gets routes to the pods, as a router would.
		c.must(t, "exec", "control", "ip", "route", "replace", p.Status.PodIP, "via", c.nodeIP(t, p.Spec.NodeName))
	}
	for _, from := range pods {
		for _, to := range pods {
			eventually(t, 20*time.Second, func() error {
				_, err := c.dial(from, "http", to.Status.PodIP, 8080)
				if err != nil {
					return fmt.Errorf("%s (%s) to %s: %w", from.Metadata.Name, from.Spec.NodeName, to.Metadata.Name, err)
				}
				return nil
			})
		}
		for _, node := range c.nodes(t) {
			if _, err := c.fetch(node, "http://"+from.Status.PodIP+":8080/hostname"); err != nil {
				t.Errorf("%s does not reach %s on %s: %v", node, from.Metadata.Name, from.Spec.NodeName, err)
			}
		}
	}
	routes := c.must(t, "exec", "node1", "ip", "route")
	for _, line := range strings.Split(routes, "\n") {
		if strings.Contains(line, " via ") &&
			(strings.HasPrefix(line, "10.77.") && !strings.Contains(line, "dev flannel.1") ||
				strings.HasPrefix(line, "10.78.") && strings.Contains(line, "flannel")) {
			t.Errorf("wrong route: %s", line)
		}
	}
	if !strings.Contains(routes, "10.77.") || !strings.Contains(routes, "10.78.") {
		t.Errorf("routes of node1:\n%s", routes)
	}
	c.kubectl(t, "delete", "namespace", plain, "--timeout=120s")
}

// switchToPools configures two pools, one for a namespace that it selects, and waits until the nodes allocate from them.
func (c Cluster) switchToPools(t *testing.T) {
	t.Helper()
	c.configure(t, `  pools:
  - {cidr: 10.77.0.0/20, blockSize: 28, encapsulation: vxlan, natOutgoing: true, namespaceSelector: tier == "gold"}
  - {name: plain, cidr: 10.78.0.0/24, blockSize: 28, encapsulation: none, namespaceSelector: tier != "gold"}
`)
	eventually(t, time.Minute, func() error {
		out, err := c.try("kubectl", "get", "addresspools", "-o", "name")
		if err == nil && (!strings.Contains(out, "pool-10-77-0-0-20") || !strings.Contains(out, "/plain")) {
			err = fmt.Errorf("pools %s", out)
		}
		return err
	})
	c.allocatesFromPools(t)
}

// allocatesFromPools waits until the configuration of every node's runtime has the pools.
func (c Cluster) allocatesFromPools(t *testing.T) {
	t.Helper()
	eventually(t, 3*time.Minute, func() error {
		for _, node := range c.nodes(t) {
			conf := c.must(t, "exec", node, "cat", "/etc/cni/net.d/00-weft.conflist")
			if !strings.Contains(conf, "calico-ipam") {
				return fmt.Errorf("%s has still %s", node, conf)
			}
		}
		return nil
	})
}

// configure adds lines to the part network of the ConfigMap, and restarts the agents.
func (c Cluster) configure(t *testing.T, lines string) {
	t.Helper()
	var cm struct {
		Data map[string]string `json:"data"`
	}
	c.get(t, &cm, "configmap", "weft", "-n", "kube-system")
	const before = "mode: cluster\n"
	text := cm.Data["weft.yaml"]
	if !strings.Contains(text, before) {
		t.Fatalf("weft.yaml:\n%s", text)
	}
	text = strings.Replace(text, before, before+lines, 1)
	patch, err := json.Marshal(map[string]any{"data": map[string]string{"weft.yaml": text}})
	if err != nil {
		t.Fatal(err)
	}
	c.kubectl(t, "-n", "kube-system", "patch", "configmap", "weft", "--type=merge", "-p", string(patch))
	c.kubectl(t, "-n", "kube-system", "rollout", "restart", "daemonset/weft", "deployment/weft-controller")
	c.weftReady(t)
}
