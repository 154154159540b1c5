// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/vm/downtime"
)

const (
	// guestImage is weft's own guest (weft vm image), as KubeVirt boots it.
	guestImage = "localhost/weft-guest:dev"
	// answerPort is the port on which it answers.
	answerPort = 7007
	// vmPool is the pool of the cluster's addresses, so that those of VMs can move.
	vmPool = "10.77.0.0/20"
	// vmTime is the time for a VM to boot, or to migrate: it is emulated, perhaps on a busy host.
	vmTime = 5 * time.Minute
)

// TestKubeVirt: KubeVirt, installed by its operator, runs VMs on weft. docs/tasks/kubevirt.md has the same steps.
func TestKubeVirt(t *testing.T) {
	dir := os.Getenv("WEFT_KUBEVIRT_DIR")
	if dir == "" {
		nettest.SkipMissing(t, "needs KubeVirt, built from its source: make e2e-kubevirt")
	}
	c := kubeVirtCluster{virtctl: filepath.Join(dir, "bin/virtctl")}
	if name := os.Getenv("WEFT_E2E_CLUSTER"); name != "" { // of an earlier run that was killed
		c.Cluster = Cluster{name: name, cni: "weft"}
	} else {
		c.Cluster = newCluster(t, "e2ekv", "--nodes", "3", "--cni", "weft")
		c.configure(t, "  pools:\n  - {cidr: "+vmPool+", blockSize: 28, encapsulation: vxlan, natOutgoing: true}\n")
		c.allocatesFromPools(t)
		c.routeBlocks(t)
		c.installKubeVirt(t)
	}
	for _, b := range []struct{ binding, yaml string }{
		{"masquerade", "masquerade: {}"}, {"weft-direct", "binding: {name: weft-direct}"},
	} {
		t.Run(b.binding, func(t *testing.T) { c.testVM(t, b.binding, b.yaml) })
	}
	t.Run("connectivity-test", c.testConnectivityTest)
}

// kubeVirtCluster is a cluster with KubeVirt.
type kubeVirtCluster struct {
	Cluster
	virtctl string // the program
}

// routeBlocks adds routes to the nodes' blocks to the control plane's host, which is no node and calls webhooks in pods. A
// block's own node must be the next hop: from others weft accepts only pods in its tunnel.
func (c kubeVirtCluster) routeBlocks(t *testing.T) {
	t.Helper()
	var blocks struct {
		Items []struct{ Spec struct{ CIDR, Node string } }
	}
	eventually(t, time.Minute, func() error {
		c.get(t, &blocks, "addressblocks")
		on := map[string]bool{}
		for _, b := range blocks.Items {
			on[b.Spec.Node] = true
		}
		if len(on) < 3 {
			return fmt.Errorf("nodes with blocks: %v", on)
		}
		return nil
	})
	for _, b := range blocks.Items {
		c.must(t, "exec", "control", "ip", "route", "replace", b.Spec.CIDR, "via", c.nodeIP(t, b.Spec.Node))
	}
}

// installKubeVirt installs KubeVirt, registers weft's binding, and loads the guest into all nodes.
func (c kubeVirtCluster) installKubeVirt(t *testing.T) {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "../kubevirt/install.sh", c.name).CombinedOutput(); err != nil {
		t.Fatalf("KubeVirt: %v\n%s", err, out)
	}
	t.Logf("KubeVirt is available after %.0f s", time.Since(began).Seconds())
	c.kubectl(t, "apply", "-f", "../../../deploy/kubevirt/weft-direct.yaml")
	c.kubectl(t, "patch", "kubevirt", "-n", "kubevirt", "kubevirt", "--type=merge", "--patch-file=../../../deploy/kubevirt/binding.yaml")
	image, err := filepath.Abs("../../../bin/weft-guest.tar")
	if err != nil {
		t.Fatal(err)
	}
	c.must(t, "load", image)
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := c.try("kubectl", "get", "kubevirt,vmi,vmim,pods", "-A", "-o", "wide")
			t.Log(out)
		}
	})
}

// vmManifest returns a VM that boots weft's guest by its kernel.
func vmManifest(name, binding string) string {
	return fmt.Sprintf(`
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: %[1]s}
spec:
  runStrategy: Always
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      terminationGracePeriodSeconds: 0
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node1, node2]}]}]
      domain:
        firmware:
          kernelBoot:
            kernelArgs: console=ttyS0 quiet panic=-1 no_timer_check weft.answer=%[2]d
            container: {image: "%[3]s", imagePullPolicy: IfNotPresent, kernelPath: /boot/vmlinuz, initrdPath: /boot/initrd}
        memory: {guest: 192Mi}
        devices:
          autoattachGraphicsDevice: false
          autoattachMemBalloon: false
          interfaces: [{name: default, %[4]s}]
      networks: [{name: default, pod: {}}]
`, name, answerPort, guestImage, binding)
}

// vmi is the part of a VirtualMachineInstance that the tests read.
type vmi struct {
	Metadata struct{ UID string }
	Status   struct {
		Phase, NodeName string
		Interfaces      []struct{ IPAddress string }
	}
}

// testVM boots a VM, and tests its lease, its connections, a policy and a migration.
func (c kubeVirtCluster) testVM(t *testing.T, binding, yaml string) {
	ns := c.namespace(t)
	pods := c.rollOut(t, ns, "web", 3)
	began := time.Now()
	c.apply(t, ns, vmManifest("vm", yaml))
	v := c.running(t, ns, "")
	running := time.Since(began)
	lease := c.awaitLease(t, ns)
	t.Logf("%s: runs after %.1f s, has a lease after %.1f s: %s", binding, running.Seconds(), time.Since(began).Seconds(), lease)
	logs := c.kubectl(t, "-n", "kube-system", "logs", "-l", "app.kubernetes.io/name=weft", "-c", "agent", "--tail=-1")
	if strings.Contains(logs, "permission denied") {
		t.Errorf("an agent lacks a right:\n%s", logs)
	}
	addr := v.Status.Interfaces[0].IPAddress
	own := addr + "/32"
	if binding == "masquerade" {
		own = "10.0.2.2/24"
	}
	if !strings.Contains(lease, " "+own+" ") || !strings.Contains(lease, "mtu=1450") {
		t.Errorf("the guest has %q, want %s and the MTU of the pod, 1450", lease, own)
	}
	if p, err := netip.ParseAddr(addr); err != nil || !netip.MustParsePrefix(vmPool).Contains(p) {
		t.Errorf("the VM's address %s is not of the pool", addr)
	}
	t.Run("reach", func(t *testing.T) {
		for _, p := range pods {
			c.reachBothWays(t, ns, p, addr)
		}
	})
	t.Run("agent", func(t *testing.T) { // a new agent compares all pods with their attachments
		c.kubectl(t, "-n", "kube-system", "rollout", "restart", "daemonset/weft")
		c.weftReady(t)
		for _, p := range pods {
			c.reachBothWays(t, ns, p, addr)
		}
	})
	t.Run("policy", func(t *testing.T) { c.testVMPolicy(t, ns, pods, addr) })
	t.Run("migration", func(t *testing.T) { c.testMigration(t, ns, binding, addr) })
	t.Run("restart", func(t *testing.T) {
		uid := c.kubectl(t, "get", "vmi", "vm", "-n", ns, "-o", "jsonpath={.metadata.uid}")
		c.must(t, "exec", "control", c.virtctl, "restart", "-n", ns, "vm")
		if again := c.running(t, ns, uid).Status.Interfaces[0].IPAddress; again != addr {
			t.Errorf("the address was %s and is %s after a restart", addr, again)
		}
		if lease := c.awaitLease(t, ns); !strings.Contains(lease, " "+own+" ") {
			t.Errorf("after a restart the guest has %q, want %s", lease, own)
		}
		for _, p := range pods {
			c.reachBothWays(t, ns, p, addr)
		}
	})
}

// running waits until the VM runs and has an address, in another instance than the one with the UID.
func (c kubeVirtCluster) running(t *testing.T, ns, not string) (v vmi) {
	t.Helper()
	eventually(t, vmTime, func() error {
		out, err := c.try("kubectl", "get", "vmi", "vm", "-n", ns, "-o", "json")
		if err != nil {
			return err
		}
		v = vmi{}
		if err := json.Unmarshal([]byte(out), &v); err != nil {
			return err
		}
		if v.Status.Phase != "Running" || len(v.Status.Interfaces) == 0 || v.Status.Interfaces[0].IPAddress == "" || v.Metadata.UID == not {
			return fmt.Errorf("VM %+v", v)
		}
		return nil
	})
	return v
}

// awaitLease waits until the guest has a lease.
func (c kubeVirtCluster) awaitLease(t *testing.T, ns string) (lease string) {
	t.Helper()
	eventually(t, vmTime, func() (err error) {
		lease, err = c.lease(ns, "vm")
		return err
	})
	return lease
}

// lease returns what the guest's console says about its lease.
func (c kubeVirtCluster) lease(ns, vm string) (string, error) {
	out, err := c.try("kubectl", "-n", ns, "logs", "-l", "vm.kubevirt.io/name="+vm, "-c", "guest-console-log", "--tail=-1")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(out) {
		if _, lease, ok := strings.Cut(line, "weft-guest: LEASE "); ok {
			return strings.TrimSpace(lease), nil
		}
	}
	return "", fmt.Errorf("the console has no lease: %q", out)
}

// reachBothWays: pod and guest ping each other, and open connections to each other.
func (c kubeVirtCluster) reachBothWays(t *testing.T, ns string, p Pod, addr string) {
	t.Helper()
	eventually(t, time.Minute, func() error { return c.askGuest(ns, p, addr) })
	eventually(t, time.Minute, func() error {
		_, err := c.try("kubectl", "-n", ns, "exec", p.Metadata.Name, "--", "ping", "-c", "1", "-W", "2", addr)
		return err
	})
	eventually(t, 2*time.Minute, func() error {
		// Busybox' static wget dies where names are looked up.
		out, err := c.guest(ns, "vm", fmt.Sprintf(
			`ping -c 1 -W 5 %[1]s >/dev/null && printf 'GET /hostname HTTP/1.0\r\n\r\n' | nc -w 5 %[1]s 8080`, p.Status.PodIP))
		if err == nil && !strings.Contains(out, p.Metadata.Name) {
			err = fmt.Errorf("the guest reads %q from %s", out, p.Metadata.Name)
		}
		return err
	})
}

// askGuest connects from a pod to the guest.
func (c kubeVirtCluster) askGuest(ns string, p Pod, addr string) error {
	out, err := c.try("kubectl", "-n", ns, "exec", p.Metadata.Name, "--", "sh", "-c",
		fmt.Sprintf("echo hello | nc -w 3 %s %d", addr, answerPort))
	if err == nil && strings.TrimSpace(out) != "guest hello" {
		err = fmt.Errorf("%s reads %q from the guest", p.Metadata.Name, out)
	}
	return err
}

// testVMPolicy: a NetworkPolicy that selects the VM by its label denies, and allows what it names.
func (c kubeVirtCluster) testVMPolicy(t *testing.T, ns string, pods []Pod, addr string) {
	c.apply(t, ns, `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: vm}
spec:
  podSelector: {matchLabels: {app: vm}}
  policyTypes: [Ingress]
  ingress: [{from: [{podSelector: {matchLabels: {friend: "yes"}}}]}]
`)
	friend, other := pods[0], pods[1]
	c.kubectl(t, "-n", ns, "label", "pod", friend.Metadata.Name, "friend=yes")
	eventually(t, time.Minute, func() error {
		if err := c.askGuest(ns, other, addr); err == nil {
			return errors.New("the policy does not deny")
		}
		return nil
	})
	eventually(t, time.Minute, func() error { return c.askGuest(ns, friend, addr) })
	if err := c.askGuest(ns, other, addr); err == nil {
		t.Error("the guest answers a pod that the policy does not allow")
	}
	c.kubectl(t, "-n", ns, "delete", "networkpolicy", "vm")
	eventually(t, time.Minute, func() error { return c.askGuest(ns, other, addr) })
}

// testMigration: KubeVirt migrates the VM, while a pod on a third node has two connections to it, and the guest sends it a
// packet each 5 ms. No connection ends and no line is lost.
func (c kubeVirtCluster) testMigration(t *testing.T, ns, binding, addr string) {
	peer := c.podOn(t, ns, "node3")
	ctx, cancel := context.WithTimeout(t.Context(), 3*vmTime)
	defer cancel()
	pod, err := netns.Open(netnsOf(t, c.kubectl(t, "-n", ns, "get", "pod", peer.Metadata.Name, "-o", "jsonpath={.status.containerStatuses[0].containerID}")))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pod.Close() }()
	to := netip.AddrPortFrom(netip.MustParseAddr(peer.Status.PodIP), 9000)
	p := &downtime.Peer{Now: time.Now}
	if err := p.Listen(ctx, pod, to); err != nil {
		t.Fatal(err)
	}
	eventually(t, 2*time.Minute, func() error {
		_, err := c.guest(ns, "vm", "[ -e /run/talks ] || { touch /run/talks; for w in 'echo 7' 'talk 19 10ms' 'udp "+to.String()+
			" 5ms'; do guest-tools $w </dev/null >/dev/null 2>&1 & done; }")
		return err
	})
	guest := netip.MustParseAddr(addr)
	if err := errors.Join(
		p.Echo(ctx, pod, netip.AddrPortFrom(guest, 7)), p.ReadStream(ctx, pod, netip.AddrPortFrom(guest, 19), ""),
	); err != nil {
		t.Fatal(err)
	}
	for n := range 2 {
		if err := p.Await(ctx, time.Now()); err != nil {
			t.Fatalf("before the migration: %v", err)
		}
		from, began := c.where(t, ns), time.Now()
		c.must(t, "exec", "control", c.virtctl, "migrate", "-n", ns, "vm")
		eventually(t, vmTime, func() error {
			var all struct {
				Items []struct{ Status struct{ Phase string } }
			}
			out, err := c.try("kubectl", "get", "virtualmachineinstancemigrations.kubevirt.io", "-n", ns, "-o", "json")
			if err == nil {
				err = json.Unmarshal([]byte(out), &all)
			}
			if err != nil {
				return err
			}
			succeeded := 0
			for _, m := range all.Items {
				if m.Status.Phase == "Failed" {
					t.Fatalf("KubeVirt: the migration failed: %s", c.kubectl(t, "-n", ns, "get", "events"))
				}
				if m.Status.Phase == "Succeeded" {
					succeeded++
				}
			}
			if succeeded <= n {
				return fmt.Errorf("%+v", all)
			}
			return nil
		})
		took := time.Since(began)
		if err := p.Await(ctx, time.Now()); err != nil {
			t.Fatalf("after the migration: %v", err)
		}
		if now := c.where(t, ns); now == from {
			t.Errorf("the VM is still on %s", from)
		}
		m := p.MeasureFrom(began)
		t.Logf("%s: migrated from %s in %.1f s with 0 resets; the guest's packets: %d ms without one, %d lost; connections: %d ms without a reply, %d ms without a line",
			binding, from, took.Seconds(), m.Blackout.Milliseconds(), m.Lost, m.Replies.Milliseconds(), m.Stream.Milliseconds())
		var v vmi
		c.get(t, &v, "vmi", "vm", "-n", ns)
		if got := v.Status.Interfaces[0].IPAddress; got != addr {
			t.Errorf("the address was %s and is %s", addr, got)
		}
	}
}

// where returns the node of the VM.
func (c kubeVirtCluster) where(t *testing.T, ns string) string {
	t.Helper()
	return c.kubectl(t, "get", "vmi", "vm", "-n", ns, "-o", "jsonpath={.status.nodeName}")
}

// podOn returns a pod of the deployment on a node.
func (c kubeVirtCluster) podOn(t *testing.T, ns, node string) Pod {
	t.Helper()
	for _, p := range c.pods(t, ns) {
		if p.Spec.NodeName == node && strings.HasPrefix(p.Metadata.Name, "web-") {
			return p
		}
	}
	t.Fatalf("no pod runs on %s", node)
	return Pod{}
}

// netnsOf returns the network namespace of a container: that of a process in its cgroup.
func netnsOf(t *testing.T, containerID string) string {
	t.Helper()
	_, id, ok := strings.Cut(containerID, "://")
	all, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil || !ok {
		t.Fatalf("container %q: %v", containerID, err)
	}
	for _, file := range all {
		if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), id) {
			return filepath.Join(filepath.Dir(file), "ns/net")
		}
	}
	t.Fatalf("no process is in container %s", id)
	return ""
}

// guest executes a command on the guest's console, and returns what it prints.
func (c kubeVirtCluster) guest(ns, vm, command string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "../cluster", "exec", "--name", c.name, "control", c.virtctl, "console", "-n", ns, vm)
	return runOnConsole(cmd, command)
}

// testConnectivityTest: weft connectivity-test boots a VM with each binding of KubeVirt, and migrates them.
func (c kubeVirtCluster) testConnectivityTest(t *testing.T) {
	r := c.connectivityTest(t, "--only", "vms", "--boot-vms", "--disruptive", "--vm-image", guestImage)
	passed := ""
	for _, one := range r.Tests {
		t.Logf("%s: %d checks, %d failed, skipped %q %s", one.Name, len(one.Rows), one.Failed(), one.Skipped, one.Error)
		for _, row := range one.Rows {
			t.Logf("  %s: %v %s %s", row.Name, row.OK, row.Error, row.Result.Detail)
			if row.OK {
				passed += row.Name + "\n"
			}
		}
		if !dummyLinks(t) && !strings.Contains(strings.Join(one.Skipped, "\n"), "VM with bridge") {
			t.Error("KubeVirt's bridge binding cannot work without dummy interfaces, and it is not skipped")
		}
	}
	if !r.OK() {
		t.Error("a healthy cluster fails")
	}
	for _, want := range []string{"(masquerade), icmp", "(weft-direct), icmp", "(masquerade) migrates", "(weft-direct) migrates"} {
		if !strings.Contains(passed, want) {
			t.Errorf("no check %q passed", want)
		}
	}
}

// dummyLinks reports whether the kernel has the dummy interfaces that KubeVirt's bridge binding creates, by trying.
func dummyLinks(t *testing.T) bool {
	t.Helper()
	ns := nettest.NS(t, "dummy")
	err := ns.Do(func() error { return exec.Command("ip", "link", "add", "d0", "type", "dummy").Run() })
	return err == nil
}
