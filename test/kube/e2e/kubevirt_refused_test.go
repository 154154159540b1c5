// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// badNetworks are definitions of networks that no node can attach.
const badNetworks = `
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: malformed}
spec: {config: '{"cniVersion": "1.0.0", "type": "bridge", "bridge": "e2e0", "ipam": {"type": "host-local", "subnet": "10.38.0.0/33"}}'}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: parentless}
spec: {config: '{"cniVersion": "1.0.0", "type": "macvlan", "master": "nosuch0", "ipam": {"type": "static", "addresses": [{"address": "10.39.0.7/24"}]}}'}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: large}
spec: {config: '{"cniVersion": "1.0.0", "type": "macvlan", "master": "eth1", "mtu": 9000, "ipam": {"type": "static", "addresses": [{"address": "10.39.0.7/24"}]}}'}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: small}
spec: {config: '{"cniVersion": "1.0.0", "type": "macvlan", "master": "eth1", "mtu": 1000, "ipam": {"type": "static", "addresses": [{"address": "fd39::7/64"}]}}'}
`

// testRefusedVMs: a VM that cannot have its networks says why, in one event of its pod or one condition, and each node
// releases what it has attached of the pod.
func (c kubeVirtCluster) testRefusedVMs(t *testing.T) {
	ns := c.namespace(t)
	c.apply(t, ns, badNetworks)
	before, links := c.allAttachments(t), c.podLinks(t)
	for name, one := range map[string]struct {
		binding, network string
		want             []string // in an event or a condition
	}{
		"missing":    {"weft-direct", "nonsuch", []string{"nonsuch"}},
		"wrong":      {"weft-direct", "malformed", []string{"10.38.0.0/33"}},
		"parentless": {"weft-direct", "parentless", []string{"nosuch0"}},
		"too-large":  {"weft-direct", "large", []string{"9000", "eth1"}},
		"too-small":  {"weft-direct", "small", []string{"1000", "1280"}},
		"unbound":    {"nosuch-binding", "malformed", []string{"nosuch-binding"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.apply(t, ns, vmWith(name, "{name: default, masquerade: {}}, {name: blue, binding: {name: "+one.binding+"}}",
				"{name: default, pod: {}}, {name: blue, multus: {networkName: "+one.network+"}}"))
			eventually(t, 2*time.Minute, func() error { return c.says(t, ns, name, one.want) })
			c.kubectl(t, "-n", ns, "delete", "vm", name, "--timeout=120s")
			eventually(t, 2*time.Minute, func() error {
				if got := c.allAttachments(t); got != before {
					return fmt.Errorf("the nodes have %s, before the VM they had %s", got, before)
				}
				return nil
			})
			c.nothingLeft(t, links)
		})
	}
	t.Run("gate off", func(t *testing.T) { c.testGateOff(t, ns) })
}

// says returns an error unless an event of the VM or its pod, or a condition, has all the words.
func (c kubeVirtCluster) says(t *testing.T, ns, vm string, words []string) error {
	t.Helper()
	events, err := c.try("kubectl", "-n", ns, "get", "events", "-o",
		`jsonpath={range .items[*]}{.involvedObject.kind}/{.involvedObject.name} {.reason}: {.message}{"\n"}{end}`)
	if err != nil {
		return err
	}
	conditions, _ := c.try("kubectl", "-n", ns, "get", "vm,vmi", "-o",
		`jsonpath={range .items[*]}{.kind}/{.metadata.name} {.status.conditions[*].message}{"\n"}{end}`)
	for line := range strings.Lines(events + conditions) {
		found := strings.Contains(line, "/"+vm) || strings.Contains(line, "launcher-"+vm+"-")
		for _, want := range words {
			found = found && strings.Contains(line, want)
		}
		if found {
			t.Logf("%s: %s", vm, line)
			return nil
		}
	}
	return fmt.Errorf("nothing says %q of VM %s:\n%s%s", words, vm, events, conditions)
}

// allAttachments returns how many attachments each node has.
func (c kubeVirtCluster) allAttachments(t *testing.T) (all string) {
	t.Helper()
	for _, n := range c.nodes(t) {
		all += n + " " + c.attachments(t, n) + ", "
	}
	return all
}

// testGateOff: KubeVirt refuses a VM whose binding needs a feature gate that is off, by the gate's name, so that no pod has
// its network.
func (c kubeVirtCluster) testGateOff(t *testing.T, ns string) {
	var kv struct {
		Spec struct {
			Configuration struct {
				DeveloperConfiguration struct {
					DisabledFeatureGates []string `json:"disabledFeatureGates"`
				} `json:"developerConfiguration"`
			}
		}
	}
	c.get(t, &kv, "kubevirt", "kubevirt", "-n", "kubevirt")
	disabled := kv.Spec.Configuration.DeveloperConfiguration.DisabledFeatureGates
	set := func(gates []string) {
		t.Helper()
		list, err := json.Marshal(gates)
		if err != nil {
			t.Fatal(err)
		}
		c.kubectl(t, "-n", "kubevirt", "patch", "kubevirt", "kubevirt", "--type=merge", "-p",
			`{"spec": {"configuration": {"developerConfiguration": {"disabledFeatureGates": `+string(list)+`}}}}`)
	}
	set(append(slices.Clone(disabled), "PasstBinding"))
	defer set(disabled) // others of them are needed: without ExternalNetResourceInjection, for example, VMs have no macvtaps
	vm := vmManifest("gateless", fmt.Sprintf("passtBinding: {}, ports: [{port: %d}]", answerPort))
	eventually(t, vmTime, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		out, err := c.Cluster.call(ctx, vm, "kubectl", "--name", c.name, "-n", ns, "apply", "-f", "-")
		if err == nil {
			c.kubectl(t, "-n", ns, "delete", "vm", "gateless", "--timeout=120s")
			return errors.New("KubeVirt accepts a VM whose gate is off")
		}
		if !strings.Contains(err.Error(), "PasstBinding feature gate is not enabled") {
			return fmt.Errorf("KubeVirt says %s: %w", out, err)
		}
		t.Log(err)
		return nil
	})
}
