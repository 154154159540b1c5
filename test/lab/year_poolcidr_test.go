// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

const natPool = `apiVersion: weft.dev/v1alpha1
kind: AddressPool
metadata: {name: %s}
spec:
  assignmentMode: Automatic
  natOutgoing: true
  regions: [{cidr: %s, blockSize: 29}]
`

// denied is a pod that the policy denies all pods of the Deployment "many".
const denied = `apiVersion: v1
kind: Pod
metadata: {name: other}
spec: {nodeName: node2, containers: [{name: main, command: [sleep, infinity]}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: friends}
spec:
  podSelector: {matchLabels: {app: many}}
  policyTypes: [Ingress]
  ingress: [{from: [{podSelector: {matchLabels: {app: many}}}]}]
`

// TestPoolCIDR: the pods of a pool move to one with another CIDR, by restarts. At each step all pods reach each other as
// the policies allow, and no address of theirs leaves the cluster. The old pool cannot be removed before it is empty.
func TestPoolCIDR(t *testing.T) {
	from, labDir := filepath.Dir(write(t, "pool.yaml", fmt.Sprintf(natPool, "old", "10.42.0.0/24"))), labDir(t)
	must(t, "lab", "up", "--nodes", "2", "--from", from, "--dir", labDir, "--addresses", "pools", "--cluster-cidr", "10.42.0.0/24")
	must(t, "lab", "apply", "--dir", labDir, "-f", write(t, "many.yaml", deployment("many", 4, "infinity")))
	must(t, "lab", "apply", "--dir", labDir, "-f", write(t, "denied.yaml", denied))
	outside := newOutside(t, labDir)
	migrate := func(flags ...string) result {
		t.Helper()
		return weft(t, append([]string{
			"ipam", "migrate", "old", "--to", "new", "--store-dir", filepath.Join(labDir, "store"),
		}, flags...)...)
	}
	whole := func(when string) {
		t.Helper()
		if r := settled(t, labDir); r.Reached == 0 {
			t.Errorf("%s: reach: %+v", when, r)
		}
		outside.masqueraded(when)
	}
	whole("in the old pool")
	if a := migrate(); a.code == 0 || !strings.Contains(a.stderr, `"new"`) {
		t.Errorf("a pool that is not there: exit %d: %s", a.code, a.stderr)
	}
	must(t, "lab", "apply", "--dir", labDir, "-f", write(t, "new.yaml", fmt.Sprintf(natPool, "new", "10.43.0.0/24")))
	if a := migrate(); a.code != 1 || !strings.Contains(a.stderr, "5 pods") {
		t.Errorf("the old pool is disabled: exit %d: %s%s", a.code, a.stdout, a.stderr)
	}
	whole("the old pool is disabled")
	for i, p := range status(t, labDir).Pods {
		if a := migrate("--delete"); a.code != 1 || !strings.Contains(a.stderr, fmt.Sprintf("%d pod", 5-i)) {
			t.Errorf("%d pods have moved, and the old pool is to be removed: exit %d: %s%s", i, a.code, a.stdout, a.stderr)
		}
		must(t, "lab", "restart", "--dir", labDir, p.Name)
		whole(fmt.Sprintf("%d pods have moved", i+1))
	}
	for name, ips := range clusterOf(t, labDir).ips {
		for _, ip := range ips {
			if !strings.HasPrefix(ip.String(), "10.43.0.") {
				t.Errorf("pod %s has %s", name, ip)
			}
		}
	}
	within(t, 180*waitUnit, "the old pool is empty and removed", func() bool { return migrate("--delete").code == 0 })
	whole("in the new pool")
	if a := weft(t, "ipam", "check", "--store-dir", filepath.Join(labDir, "store")); a.code != 0 {
		t.Errorf("the audit finds:\n%s", a.stdout)
	}
	if show := must(t, "ipam", "show", "--store-dir", filepath.Join(labDir, "store")).stdout; strings.Contains(show, "10.42.0.") {
		t.Errorf("something of the old pool is left:\n%s", show)
	}
	for _, node := range []string{"node1", "node2"} {
		if routes := inNode(t, labDir, node, "ip", "route"); strings.Contains(routes, "10.42.0.") {
			t.Errorf("routes of %s:\n%s", node, routes)
		}
	}
}

// outside is a host outside the cluster, 198.51.100.1 on node2, which counts packets from pods' addresses.
type outside struct {
	t      *testing.T
	labDir string
}

func newOutside(t *testing.T, labDir string) outside {
	t.Helper()
	inNode(t, labDir, "node2", "ip", "addr", "add", "198.51.100.1/32", "dev", "eth0")
	inNode(t, labDir, "node1", "ip", "route", "add", "198.51.100.1", "via", "172.18.0.2")
	for _, rule := range []string{
		"table ip outside", "chain ip outside in { type filter hook prerouting priority -350 ; }",
		`rule ip outside in iifname "eth0" ip daddr 198.51.100.1 ip saddr 10.42.0.0/15 counter`,
	} {
		inNode(t, labDir, "node2", "nft", "add "+rule)
	}
	return outside{t, labDir}
}

// masqueraded fails unless node1's pods reach the host, and none by its own address.
func (o outside) masqueraded(when string) {
	o.t.Helper()
	tried := 0
	for _, p := range status(o.t, o.labDir).Pods {
		if p.Node != "node1" {
			continue
		}
		tried++
		if a := weft(o.t, "lab", "exec", "--dir", o.labDir, p.Name, "--", "ping", "-n", "-c2", "-W2", "198.51.100.1"); a.code != 0 {
			o.t.Errorf("%s: pod %s with %v does not reach a host outside: %s", when, p.Name, p.IPs, a.stdout)
		}
	}
	if tried == 0 {
		o.t.Error("no pod is on node1")
	}
	if got := inNode(o.t, o.labDir, "node2", "nft", "list", "table", "ip", "outside"); !strings.Contains(got, "packets 0 ") {
		o.t.Errorf("%s: packets leave with pods' addresses:\n%s", when, got)
	}
}
