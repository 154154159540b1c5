// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// testPlug: KubeVirt plugs a NetworkAttachmentDefinition's network into a VM that runs, and weft attaches it to the VM's pod
// without a migration. The VM's links follow the state in its specification, it migrates with the network, and the network
// is unplugged: of it, nothing is left. KubeVirt plugs and unplugs no other binding than its bridge, whose guests do not
// receive on a macvlan, because their MAC is another one.
func (c kubeVirtCluster) testPlug(t *testing.T) {
	ns := c.namespace(t)
	c.apply(t, ns, moreNetworks)
	c.apply(t, ns, podOn("peer", "node3", "wide"))
	c.apply(t, ns, vmWith("vm", "{name: default, masquerade: {}}, {name: green, binding: {name: weft-direct}}",
		"{name: default, pod: {}}, {name: green, multus: {networkName: wide}}"))
	c.running(t, ns, "")
	c.awaitLease(t, ns)
	peer := c.allReadyNamed(t, ns, "peer").networks(t)[1].IPs[0]
	const gateway = "10.38.0.1" // of the bridge on each node
	c.guestHas(t, ns, "ADDR eth1 inet 10.37.132.")
	const nics = "/spec/template/spec/domain/devices/interfaces/"

	c.patchVM(t, ns,
		`{"op": "add", "path": "/spec/template/spec/networks/-", "value": {"name": "blue", "multus": {"networkName": "local"}}}`,
		`{"op": "add", "path": "`+nics+`-", "value": {"name": "blue", "bridge": {}}}`)
	c.guestHas(t, ns, "ADDR eth2 inet 10.38.0.")
	c.guestReaches(t, ns, "eth2", gateway)
	if all, err := c.migrations(ns); err != nil || len(all) > 0 {
		t.Errorf("KubeVirt migrates the VM to plug a network: %+v %v", all, err)
	}

	for _, nic := range []struct{ index, card, peer string }{{"1", "eth1", peer}, {"2", "eth2", gateway}} {
		for _, state := range []struct{ name, carrier string }{{"down", "0"}, {"up", "1"}} {
			c.patchVM(t, ns, `{"op": "add", "path": "`+nics+nic.index+`/state", "value": "`+state.name+`"}`)
			eventually(t, vmTime, func() error {
				facts, err := c.guest(ns, "vm", "facts")
				for line := range strings.Lines(facts) {
					if strings.Contains(line, "LINK "+nic.card+" ") && strings.Contains(line, "carrier="+state.carrier) {
						return err
					}
				}
				return errors.Join(err, fmt.Errorf("%s is not %s: %s", nic.card, state.name, facts))
			})
		}
		c.guestReaches(t, ns, nic.card, nic.peer)
	}

	if phase := c.migrate(t, ns); phase != "Succeeded" {
		t.Fatalf("the migration has %s: %s", phase, c.kubectl(t, "-n", ns, "get", "events"))
	}
	c.guestReaches(t, ns, "eth1", peer)

	c.patchVM(t, ns, `{"op": "add", "path": "`+nics+`2/state", "value": "absent"}`)
	eventually(t, vmTime, func() error {
		facts, err := c.guest(ns, "vm", "facts")
		left := c.kubectl(t, "get", "vm", "vm", "-n", ns, "-o", "jsonpath={.spec.template.spec.networks[*].name}")
		status := c.kubectl(t, "get", "pod", "-n", ns, "-l", "app=vm", "--field-selector=status.phase=Running", "-o",
			`jsonpath={.items[0].metadata.annotations.k8s\.v1\.cni\.cncf\.io/network-status}`)
		if err == nil && (strings.Contains(facts, "eth2") || left != "default green" || strings.Contains(status, ns+"/local")) {
			err = fmt.Errorf("the guest has %s, the VM's networks are %q, its pod's %s", facts, left, status)
		}
		return err
	})
	eventually(t, vmTime, func() error { // the VM keeps the address that the node where it began has allocated
		_, err := c.try("exec", "control", c.weft, "ipam", "check")
		return err
	})
}

// patchVM applies operations of a JSON patch to the VM.
func (c kubeVirtCluster) patchVM(t *testing.T, ns string, operations ...string) {
	t.Helper()
	c.kubectl(t, "patch", "vm", "vm", "-n", ns, "--type=json", "-p", "["+strings.Join(operations, ", ")+"]")
}

// guestHas waits until the guest's facts have all parts, and returns them.
func (c kubeVirtCluster) guestHas(t *testing.T, ns string, parts ...string) (facts string) {
	t.Helper()
	eventually(t, vmTime, func() (err error) {
		facts, err = c.guest(ns, "vm", "facts")
		for _, part := range parts {
			if err == nil && !strings.Contains(facts, part) {
				err = fmt.Errorf("the guest has no %q: %s", part, facts)
			}
		}
		return err
	})
	return facts
}

// guestReaches waits until the guest pings an address by one of its cards.
func (c kubeVirtCluster) guestReaches(t *testing.T, ns, card, addr string) {
	t.Helper()
	eventually(t, vmTime, func() error {
		_, err := c.guest(ns, "vm", "ping -c 1 -W 5 -I "+card+" "+addr+" >/dev/null")
		return err
	})
}
