// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// testTargetWithoutWeft: a migration's only target is a node whose agent is away. The node is not ready, because the agent
// does not answer, so that the target's pod is not scheduled, with an event. The VM continues on its node with its connections,
// and of the canceled migration nothing is left, also not once the agent is back. Then the VM migrates.
func (c kubeVirtCluster) testTargetWithoutWeft(t *testing.T) {
	ns := c.namespace(t)
	c.rollOut(t, ns, "web", 3)
	c.apply(t, ns, vmManifest("vm", "binding: {name: weft-direct}"))
	v := c.running(t, ns, "")
	c.awaitLease(t, ns)
	addrs := v.Status.Interfaces[0].IPAddresses
	c.awaitIPv6(t, ns, "weft-direct", addrs[1]+"/128")
	target := map[string]string{"node1": "node2", "node2": "node1"}[v.Status.NodeName]
	before, links := c.allAttachments(t), c.podLinks(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*vmTime)
	defer cancel()
	peers := c.call(ctx, t, ns, addrs)
	began := time.Now()
	back := c.withoutAgent(t, target)
	peers.await(ctx, t, "while an agent is away")
	name := c.startMigration(t, ns)
	eventually(t, vmTime, func() error {
		ready, err := c.try("kubectl", "get", "node", target, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].message}`)
		if err == nil && !strings.Contains(ready, "weft agent does not answer") {
			err = fmt.Errorf("%s says %q", target, ready)
		}
		return err
	})
	c.eventSays(t, ns, "1 node(s) had untolerated taint(s)")
	if phase, err := c.phase(ns, name); err != nil || phase != "Scheduling" {
		t.Errorf("the migration has %q, want that it waits for a node: %v", phase, err)
	}
	c.must(t, "exec", "control", c.virtctl, "migrate-cancel", "-n", ns, "vm")
	eventually(t, vmTime, func() error { // KubeVirt deletes a canceled migration that has not begun
		all, err := c.migrations(ns)
		for _, m := range all {
			if m.Status.Phase != "Failed" {
				err = fmt.Errorf("the canceled migration %s has %s", m.Metadata.Name, m.Status.Phase)
			}
		}
		return err
	})
	peers.await(ctx, t, "after the canceled migration")
	if now := c.where(t, ns); now != v.Status.NodeName {
		t.Errorf("the VM is on %s, and was on %s", now, v.Status.NodeName)
	}
	back()
	c.nothingLeft(t, links)
	eventually(t, 2*time.Minute, func() error {
		if got := c.allAttachments(t); got != before {
			return fmt.Errorf("the nodes have %s, before the migration they had %s", got, before)
		}
		return nil
	})
	if phase := c.migrate(t, ns); phase != "Succeeded" {
		t.Errorf("with the agent back a migration has %s", phase)
	}
	peers.await(ctx, t, "after the migration")
	for i, p := range peers {
		m := p.MeasureFrom(began)
		t.Logf("IPv%d: the guest's packets: %d ms without one, %d lost", 4+2*i, m.Blackout.Milliseconds(), m.Lost)
	}
}

// withoutAgent removes weft's agent from a node, as its administrator does by the DaemonSet's affinity. What it returns brings
// the agent back.
func (c kubeVirtCluster) withoutAgent(t *testing.T, node string) (back func()) {
	t.Helper()
	const patch = `{"spec": {"template": {"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": %s}}}}}}`
	set := func(terms string) {
		c.kubectl(t, "-n", "kube-system", "patch", "daemonset", "weft", "--type=merge", "-p", fmt.Sprintf(patch, terms))
		c.weftReady(t)
	}
	back = once(func() { set("null") })
	t.Cleanup(back) // also if the test fails before
	set(`{"nodeSelectorTerms": [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["` + node + `"]}]}]}`)
	eventually(t, 2*time.Minute, func() error {
		out, err := c.try("kubectl", "-n", "kube-system", "get", "pods", "-l", "app.kubernetes.io/name=weft",
			"--field-selector", "spec.nodeName="+node, "-o", "name")
		if err == nil && strings.TrimSpace(out) != "" {
			err = fmt.Errorf("on %s are still %s", node, out)
		}
		return err
	})
	return back
}
