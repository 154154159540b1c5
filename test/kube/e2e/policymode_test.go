// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// sendingPod is a pod that sends to a port of the control plane's address in a loop, from its first instant.
func sendingPod(name, node, to string) string {
	return fmt.Sprintf(`
---
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: sender}}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 0
  containers:
  - {name: c, image: %s, command: [sh, -c, "while :; do echo x | nc -u -q0 %s 9999; done"]}
`, name, node, agnhost, to)
}

// denyEgress denies all that pods send.
const denyEgress = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: deny}
spec: {podSelector: {}, policyTypes: [Egress]}
`

// seen are the sources of packets that have arrived at the control plane.
func (c Cluster) seen(t *testing.T) string {
	t.Helper()
	return c.must(t, "exec", "control", "nft", "list", "set", "inet", "seen", "sources")
}

// arrived reports whether a packet of the pod is among those that were seen.
func arrived(seen string, p Pod) bool {
	return slices.Contains(strings.FieldsFunc(seen, func(r rune) bool { return strings.ContainsRune(" ,{}\n\t", r) }), p.Status.PodIP)
}

// early reports whether the pod started before weft.
func early(p Pod) bool { return strings.HasPrefix(p.Metadata.Name, "before-") }

// TestPolicyMode: weft enforces policies for pods of the reference plugins' network. From pods under a policy that denies
// all, which send from their first instant, no packet arrives; from others each is seen. Without an agent no pod starts.
// When weft is removed the reference plugins continue alone, and weft leaves nothing.
func TestPolicyMode(t *testing.T) {
	weft(t)
	program := weftCluster(t)
	c := newCluster(t, "polm", "--cni", "reference", "--no-dns")
	run := func(args ...string) (string, error) {
		return c.try("exec", append([]string{"control", program}, args...)...)
	}
	c.must(t, "load", image(t))
	const control = "10.90.0.1" // test/kube/lib/names.sh
	for _, argv := range [][]string{
		{"add", "table", "inet", "seen"},
		{"add", "set", "inet", "seen", "sources", "{ type ipv4_addr; flags dynamic; }"},
		{"add", "chain", "inet", "seen", "in", "{ type filter hook prerouting priority -300; }"},
		{"add", "rule", "inet", "seen", "in", "udp", "dport", "9999", "add", "@sources", "{ ip saddr }"},
	} {
		c.must(t, "exec", append([]string{"control", "nft"}, argv...)...)
	}
	open, closed := c.namespace(t), c.namespaceNamed(t, "closed")
	c.apply(t, closed, denyEgress)
	c.apply(t, closed, sendingPod("before-1", "node1", control)+sendingPod("before-2", "node2", control))
	before := c.allReady(t, closed, 2, time.Minute)
	was := c.settledSnapshot(t)
	if out, err := run("install", "--set", "mode=policy", "--set", "image.tag=dev"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	for _, node := range c.nodes(t) {
		eventually(t, time.Minute, func() error {
			_, err := c.try("exec", node, "test", "-e", "/etc/cni/net.d/00-weft.conflist")
			return err
		})
	}
	for round := range 3 {
		manifest := ""
		const each = 4
		for i := range each {
			manifest += sendingPod(fmt.Sprintf("s%d-%d", round, i), fmt.Sprintf("node%d", 1+i%2), control)
		}
		c.apply(t, open, manifest)
		c.apply(t, closed, manifest)
		free, denied := c.allReady(t, open, each, 2*time.Minute), c.allReady(t, closed, len(before)+each, 2*time.Minute)
		for _, p := range free {
			eventually(t, time.Minute, func() error {
				if got := c.seen(t); !arrived(got, p) {
					return fmt.Errorf("nothing from %s (%s): %s", p.Metadata.Name, p.Status.PodIP, got)
				}
				return nil
			})
		}
		got := c.seen(t)
		for _, p := range denied {
			if !early(p) && arrived(got, p) {
				t.Errorf("a packet of %s (%s), which may send nothing, arrived: %s", p.Metadata.Name, p.Status.PodIP, got)
			}
		}
		for _, p := range append(free, denied...) {
			if !early(p) {
				for _, ns := range []string{open, closed} {
					c.kubectl(t, "-n", ns, "delete", "pod", p.Metadata.Name, "--ignore-not-found", "--wait")
				}
			}
		}
		c.must(t, "exec", "control", "nft", "flush", "set", "inet", "seen", "sources")
	}
	// A pod that ran before is named.
	eventually(t, time.Minute, func() error {
		if e := c.kubectl(t, "-n", closed, "get", "events"); !strings.Contains(e, "PolicyNotEnforced") {
			return errors.New(e)
		}
		return nil
	})
	const away = `{"spec":{"template":{"spec":{"nodeSelector":{"away":%s}}}}}`
	c.kubectl(t, "-n", "kube-system", "patch", "daemonset", "weft", "-p", fmt.Sprintf(away, `"yes"`))
	eventually(t, time.Minute, func() error {
		if left := c.kubectl(t, "-n", "kube-system", "get", "pods", "-l", "app.kubernetes.io/name=weft", "-o", "name"); left != "" {
			return errors.New(left)
		}
		return nil
	})
	c.apply(t, closed, sendingPod("without", "node2", control))
	eventually(t, 4*time.Minute, func() error {
		if e := c.kubectl(t, "-n", closed, "get", "events", "--field-selector", "involvedObject.name=without"); !strings.Contains(e, "FailedCreatePodSandBox") {
			return errors.New(e)
		}
		return nil
	})
	c.kubectl(t, "-n", "kube-system", "patch", "daemonset", "weft", "-p", fmt.Sprintf(away, "null"))
	for _, p := range c.allReady(t, closed, len(before)+1, 3*time.Minute) {
		if p.Metadata.Name == "without" && arrived(c.seen(t), p) {
			t.Error("a packet of a pod arrived that started without an agent")
		}
	}
	// Nothing of weft is in the pods: they need not end before.
	if out, err := run("uninstall", "--yes"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	c.kubectl(t, "-n", closed, "delete", "pod", "without")
	eventually(t, time.Minute, func() error {
		if left := changes(was, c.snapshot(t)); left != "" {
			return fmt.Errorf("weft left or changed (- before, + after):\n%s", left)
		}
		return nil
	})
}
