// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// testKilledNode: the node of the VM loses power, the first time while the VM runs, the second time while it migrates to the
// other node. Each time the VM is started again on the other node, with its addresses, and the dead node, when it boots, holds
// nothing of it: not a link, and no address that is another's now.
func (c kubeVirtCluster) testKilledNode(t *testing.T, ns, binding string, own, addrs []string) {
	for _, name := range []string{"running", "migrating"} {
		t.Run(name, func(t *testing.T) {
			links := c.podLinks(t)
			var v vmi
			if name == "migrating" {
				policy, normally := c.slowly(t, ns, 3600)
				defer normally()
				_, v = c.transferring(t, ns, policy)
			} else {
				c.get(t, &v, "vmi", "vm", "-n", ns)
			}
			began := time.Now()
			boot := c.losePower(t, v.Status.NodeName)
			c.restarted(t, ns, v.Metadata.UID, binding, own, addrs)
			now := c.where(t, ns)
			if now == v.Status.NodeName {
				t.Errorf("the VM is on %s, which is dead", now)
			}
			t.Logf("%s has died: the VM is on %s with its addresses after %.0f s", v.Status.NodeName, now, time.Since(began).Seconds())
			c.reachesAgain(t, ns, addrs)
			boot()
			c.reachesAgain(t, ns, addrs)
			if after := c.where(t, ns); after != now {
				t.Errorf("the VM was on %s and is on %s after the other node has booted", now, after)
			}
			c.nothingLeft(t, links)
		})
	}
}

// reachesAgain: the VM and the pods that are ready now, one of each node that is, reach each other.
func (c kubeVirtCluster) reachesAgain(t *testing.T, ns string, addrs []string) {
	t.Helper()
	c.kubectl(t, "-n", ns, "rollout", "status", "deployment/web", "--timeout=180s")
	for _, p := range c.pods(t, ns) {
		if strings.HasPrefix(p.Metadata.Name, "web-") && p.ready() {
			c.reachBothWays(t, ns, p, addrs)
		}
	}
}

// losePower kills a node as a power failure does, and declares it out of service, as its administrator does, so that its pods
// are deleted. KubeVirt takes a node for dead after five minutes without a heartbeat: the last one is moved back, so that the
// test need not wait. The returned function boots the node, and waits until it serves VMs again.
func (c kubeVirtCluster) losePower(t *testing.T, node string) (boot func()) {
	t.Helper()
	const taint, heartbeat = "node.kubernetes.io/out-of-service", "kubevirt.io/heartbeat"
	boot = once(func() {
		c.must(t, "start", node)
		c.kubectl(t, "wait", "--for=condition=Ready", "node/"+node, "--timeout=180s")
		c.kubectl(t, "taint", "node", node, taint+"-")
		c.weftReady(t)
		eventually(t, vmTime, func() error {
			out, err := c.try("kubectl", "get", "node", node, "-o", `jsonpath={.metadata.labels.kubevirt\.io/schedulable}`)
			if err == nil && out != "true" {
				err = fmt.Errorf("KubeVirt does not start VMs on %s: %q", node, out)
			}
			return err
		})
	})
	t.Cleanup(boot) // also if the test fails before
	c.must(t, "stop", node)
	c.kubectl(t, "wait", "--for=condition=Ready=unknown", "node/"+node, "--timeout=180s")
	c.kubectl(t, "taint", "node", node, taint+"=nodeshutdown:NoExecute")
	c.kubectl(t, "annotate", "--overwrite", "node", node, heartbeat+"=2000-01-01T00:00:00Z")
	return boot
}
