// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	macvtapResource = "macvtap.network.kubevirt.io/dataplane"
	macvtapMAC      = "02:00:00:00:07:17"
	// dataplane is macvtap-cni's configuration and a network, as its documentation has them.
	dataplane = `[{"name": "dataplane", "lowerDevice": "eth1", "mode": "bridge", "capacity": 5}]`
	lan       = `
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: dataplane, annotations: {k8s.v1.cni.cncf.io/resourceName: ` + macvtapResource + `}}
spec: {config: '{"cniVersion": "0.3.1", "name": "dataplane", "type": "macvtap", "mtu": 1400}'}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: unserved, annotations: {k8s.v1.cni.cncf.io/resourceName: macvtap.network.kubevirt.io/unserved}}
spec: {config: '{"cniVersion": "0.3.1", "name": "unserved", "type": "macvtap"}'}
`
)

// testMacvtap: VMs have macvtaps of the agents' device plugin, by macvtap-cni's configuration. A guest has a lease of the
// nodes' network, its MAC and MTU; it reaches a node, a pod on the VM's node and a pod on another one; a new agent does not
// disturb it; it migrates; and nothing is left of it. A resource that no node has, and a wrong configuration, are events.
func (c kubeVirtCluster) testMacvtap(t *testing.T) {
	c.enableMacvtaps(t)
	ns := c.namespace(t)
	c.apply(t, ns, moreNetworks)
	c.apply(t, ns, lan)
	c.serveLAN(t, "node3")
	c.apply(t, ns, podOn("peer", "node3", "wide"))
	before := taps(t)
	c.apply(t, ns, vmWith("vm",
		"{name: default, masquerade: {}}, {name: lan, macAddress: '"+macvtapMAC+"', binding: {name: macvtap}}",
		"{name: default, pod: {}}, {name: lan, multus: {networkName: dataplane}}"))
	v := c.running(t, ns, "")
	c.awaitLease(t, ns)
	facts := c.guestHas(t, ns, "LINK eth1 mac="+macvtapMAC+" mtu=1400 ", "ADDR eth1 inet 10.37.133.")
	t.Logf("the guest has %s; the VM's status %+v", facts, v.Status.Interfaces)
	c.guestReaches(t, ns, "eth1", "10.37.133.1")
	_, addr, _ := strings.Cut(facts, "ADDR eth1 inet ")
	addr, _, _ = strings.Cut(addr, "/")
	reached := func() error {
		_, err := c.try("exec", "node3", "ping", "-c", "1", "-W", "2", addr)
		return err
	}
	eventually(t, time.Minute, reached)

	// A pod on each node has a macvlan on the same interface; the guest gets a second address, on their network.
	c.apply(t, ns, podOn("near", v.Status.NodeName, "wide"))
	_, err := c.guest(ns, "vm", "ip addr add 10.37.132.60/24 dev eth1")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"near", "peer"} {
		p := c.allReadyNamed(t, ns, name)
		c.guestReaches(t, ns, "eth1", p.networks(t)[1].IPs[0])
		eventually(t, time.Minute, func() error { return c.askGuest(ns, p, "10.37.132.60") })
	}

	t.Run("agent", func(t *testing.T) {
		c.kubectl(t, "-n", "kube-system", "rollout", "restart", "daemonset/weft")
		c.weftReady(t)
		if err := reached(); err != nil {
			t.Errorf("after other agents have begun: %v", err)
		}
		c.offered(t, "node1", "5")
		c.offered(t, "node2", "5")
	})
	t.Run("migration", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(migrations(t)+1)*vmTime)
		defer cancel()
		peer := c.allReadyNamed(t, ns, "peer")
		peers := c.callFrom(ctx, t, ns, peer, peer.networks(t)[1].IPs, []string{"10.37.132.60"})
		c.measureMigrations(ctx, t, ns, "macvtap", peers)
		eventually(t, time.Minute, reached)
		c.guestReaches(t, ns, "eth1", "10.37.133.1")
		if after, err := c.guest(ns, "vm", "facts"); err != nil || !strings.Contains(after, "LINK eth1 mac="+macvtapMAC+" mtu=1400 ") {
			t.Errorf("the guest has after the migration %s (%v)", after, err)
		}
	})
	t.Run("refused", func(t *testing.T) { c.testMacvtapsRefused(t, ns) })
	c.kubectl(t, "-n", ns, "delete", "vm", "--all", "--timeout=180s")
	eventually(t, time.Minute, func() error {
		if after := taps(t); after != before {
			return fmt.Errorf("files of macvtaps: %q, and there were %q", after, before)
		}
		return nil
	})
}

// testMacvtapsRefused has a network whose resource no node has, and configurations with mistakes.
func (c kubeVirtCluster) testMacvtapsRefused(t *testing.T, ns string) {
	c.apply(t, ns, vmWith("unserved", "{name: default, masquerade: {}}, {name: lan, binding: {name: macvtap}}",
		"{name: default, pod: {}}, {name: lan, multus: {networkName: unserved}}"))
	c.eventSays(t, ns, "Insufficient macvtap.network.kubevirt.io/unserved")
	c.macvtapConfig(t, `[{"name": "dataplane", "lowerDevice": "eth1", "mode": "brigde"}]`)
	c.eventSays(t, "default", `mode "brigde" of resource "dataplane" is not one of bridge, private, vepa`)
	c.macvtapConfig(t, `[{"name": "dataplane", "lowerDevice": "nosuch0"}]`)
	c.eventSays(t, "default", `has no devices: lowerDevice "nosuch0" does not exist on the node`)
	c.offered(t, "node1", "0")
	c.macvtapConfig(t, dataplane)
	c.offered(t, "node1", "5")
}

// eventSays waits for an event.
func (c kubeVirtCluster) eventSays(t *testing.T, ns, want string) {
	t.Helper()
	eventually(t, vmTime, func() error {
		out, err := c.try("kubectl", "-n", ns, "get", "events", "-o", `jsonpath={range .items[*]}{.message}{"\n"}{end}`)
		if err == nil && !strings.Contains(out, want) {
			err = fmt.Errorf("no event says %q:\n%s", want, out)
		}
		return err
	})
}

// enableMacvtaps makes the agents device plugins, as the documentation says, and registers the binding.
func (c kubeVirtCluster) enableMacvtaps(t *testing.T) {
	t.Helper()
	c.macvtapConfig(t, dataplane)
	c.kubectl(t, "patch", "kubevirt", "-n", "kubevirt", "kubevirt", "--type=merge", "-p",
		`{"spec": {"configuration": {"network": {"binding": {"macvtap": {"domainAttachmentType": "tap"}}}}}}`)
	var cm struct {
		Data map[string]string `json:"data"`
	}
	c.get(t, &cm, "configmap", "weft", "-n", "kube-system")
	if text := cm.Data["weft.yaml"]; !strings.Contains(text, "macvtaps:") {
		patch, err := json.Marshal(map[string]any{"data": map[string]string{
			"weft.yaml": text + "\nvirtualMachines: {macvtaps: /etc/macvtap/DP_MACVTAP_CONF}\n",
		}})
		if err != nil {
			t.Fatal(err)
		}
		c.kubectl(t, "-n", "kube-system", "patch", "configmap", "weft", "--type=merge", "-p", string(patch))
		c.kubectl(t, "-n", "kube-system", "patch", "daemonset", "weft", "--patch-file=../../../deploy/kubevirt/macvtap.yaml")
		c.weftReady(t)
	}
	for _, node := range []string{"node1", "node2"} {
		c.offered(t, node, "5")
	}
}

func (c kubeVirtCluster) macvtapConfig(t *testing.T, conf string) {
	t.Helper()
	c.apply(t, "kube-system", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: macvtap-deviceplugin-config}\ndata:\n  DP_MACVTAP_CONF: |\n    "+conf+"\n")
}

// offered waits until a node has so many devices of the resource.
func (c kubeVirtCluster) offered(t *testing.T, node, want string) {
	t.Helper()
	eventually(t, vmTime, func() error { // the kubelet updates the file of a ConfigMap within two minutes
		var n struct {
			Status struct{ Allocatable map[string]string }
		}
		out, err := c.try("kubectl", "get", "node", node, "-o", "json")
		if err == nil {
			err = json.Unmarshal([]byte(out), &n)
		}
		if have := n.Status.Allocatable[macvtapResource]; err == nil && have != want {
			err = fmt.Errorf("%s has %q of %s, want %s", node, have, macvtapResource, want)
		}
		return err
	})
}

// serveLAN makes a node a DHCP server of the network of its eth1.
func (c kubeVirtCluster) serveLAN(t *testing.T, node string) {
	t.Helper()
	dir := t.TempDir()
	conf := filepath.Join(dir, "udhcpd.conf")
	text := fmt.Sprintf("start 10.37.133.20\nend 10.37.133.50\ninterface eth1\nlease_file %s/leases\npidfile %[1]s/pid\noption subnet 255.255.255.0\n", dir)
	if err := errors.Join(os.WriteFile(conf, []byte(text), 0o644), os.WriteFile(dir+"/leases", nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	c.must(t, "exec", node, "ip", "addr", "replace", "10.37.133.1/24", "dev", "eth1")
	server := exec.CommandContext(t.Context(), "../cluster", "exec", "--name", c.name, node, "busybox", "udhcpd", "-f", conf)
	server.Stdout, server.Stderr = t.Output(), t.Output()
	server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it is a child of the script
	server.Cancel = func() error { return syscall.Kill(-server.Process.Pid, syscall.SIGKILL) }
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Wait()
		_, _ = c.try("exec", node, "ip", "addr", "del", "10.37.133.1/24", "dev", "eth1")
	})
}

// taps returns the files of macvtaps, of all nodes.
func taps(t *testing.T) string {
	t.Helper()
	all, err := filepath.Glob("/dev/tap[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}
