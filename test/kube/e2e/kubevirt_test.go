// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
)

const (
	// guestImage is weft's own guest (weft vm image), as KubeVirt boots it.
	guestImage = "localhost/weft-guest:dev"
	// answerPort is the port on which it answers.
	answerPort = 7007
	// slowRate is that of the wire of a migration that does not complete before a test has ended it: it transfers a hundred
	// MiB. Bits per second, as tc writes them.
	slowRate = "8mbit"
	// clusterDNS is the address of the cluster's DNS.
	clusterDNS = "10.96.0.10"
	// vmTime is the time for a VM to boot, or to migrate: it is emulated, perhaps on a busy host.
	vmTime = 5 * time.Minute
)

// TestKubeVirt: KubeVirt, installed by its operator, runs VMs on weft. docs/tasks/kubevirt.md has the same steps.
func TestKubeVirt(t *testing.T) {
	c, kept := kubeVirt(t, "e2ekv")
	if !kept {
		c.Cluster = newCluster(t, c.name, "--nodes", "3", "--cni", "weft", "--dual-stack")
		c.configure(t, strings.ReplaceAll(dualPools, "vxlan", backend()))
		c.allocatesFromPools(t)
		c.routeBlocks(t)
		c.installKubeVirt(t)
	}
	for _, b := range []struct{ binding, yaml string }{
		{"masquerade", "masquerade: {}"}, {"weft-direct", "binding: {name: weft-direct}"},
	} {
		t.Run(b.binding, func(t *testing.T) { c.testVM(t, b.binding, b.yaml) })
	}
	t.Run("leases", c.testLeaseTimes)
	t.Run("passt", c.testPasst)
	t.Run("guest-mac", c.testBridgeMAC)
	t.Run("bridge-migration", c.testBridgeMigration)
	t.Run("networks", c.testVMNetworks)
	t.Run("ipv6-network", c.testIPv6Network)
	t.Run("macvtap", c.testMacvtap)
	t.Run("plug", c.testPlug)
	t.Run("refused", c.testRefusedVMs)
	t.Run("no-agent", c.testTargetWithoutWeft)
	t.Run("multus", c.testMultus)
	t.Run("connectivity-test", c.testConnectivityTest)
}

// kubeVirt returns the cluster of that name, and whether WEFT_E2E_CLUSTER reports that it exists: of an earlier run that was
// killed, or kept by WEFT_E2E_KEEP. It skips the test if that names another one, or if KubeVirt is not built.
func kubeVirt(t *testing.T, name string) (c kubeVirtCluster, kept bool) {
	t.Helper()
	dir := os.Getenv("WEFT_KUBEVIRT_DIR")
	if dir == "" {
		nettest.SkipMissing(t, "needs KubeVirt, built from its source: make e2e-kubevirt")
	}
	weft, err := filepath.Abs("../../../bin/image/" + runtime.GOARCH + "/weft")
	if err != nil {
		t.Fatal(err)
	}
	given := os.Getenv("WEFT_E2E_CLUSTER")
	if given != "" && given != name {
		t.Skipf("WEFT_E2E_CLUSTER names the cluster %s, and this test has %s", given, name)
	}
	return kubeVirtCluster{
		Cluster: Cluster{name: name, cni: "weft"}, virtctl: filepath.Join(dir, "bin/virtctl"), weft: weft,
	}, given != ""
}

// backend is how the nodes' pods reach each other: "none" are routes between the nodes, as with flannel's host-gw.
func backend() string { return cmp.Or(os.Getenv("WEFT_KUBEVIRT_ENCAPSULATION"), "vxlan") }

// kubeVirtCluster is a cluster with KubeVirt.
type kubeVirtCluster struct {
	Cluster
	virtctl, weft string // the programs
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
			on[fmt.Sprint(b.Spec.Node, family(b.Spec.CIDR))] = true
		}
		if len(on) < 2*3 {
			return fmt.Errorf("nodes with blocks: %v", on)
		}
		return nil
	})
	for _, b := range blocks.Items {
		via := strings.Fields(c.nodeIP(t, b.Spec.Node))
		c.must(t, "exec", "control", "ip", "route", "replace", b.Spec.CIDR, "via", via[family(b.Spec.CIDR)])
	}
}

// family returns the index of an address's or a prefix's family in lists of a dual-stack cluster.
func family(addr string) int {
	if strings.Contains(addr, ":") {
		return 1
	}
	return 0
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
	direct, err := os.ReadFile("../../../deploy/kubevirt/weft-direct.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c.apply(t, "default", strings.Replace(string(direct), `"owner": 107`, `"owner": 107, "dns": {"nameservers": ["`+clusterDNS+`"]}`, 1))
	c.kubectl(t, "patch", "kubevirt", "-n", "kubevirt", "kubevirt", "--type=merge", "--patch-file=../../../deploy/kubevirt/binding.yaml")
	image, err := filepath.Abs("../../../bin/weft-guest.tar")
	if err != nil {
		t.Fatal(err)
	}
	c.must(t, "load", image)
	c.modelEverywhere(t)
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := c.try("kubectl", "get", "kubevirt,vmi,vmim,pods", "-A", "-o", "wide")
			t.Log(out)
		}
	})
}

// modelEverywhere lets all nodes run guests that started on any of them: they are the same host. KubeVirt marks none of
// them so if their CPU, emulated, counts as an obsolete model.
func (c kubeVirtCluster) modelEverywhere(t *testing.T) {
	t.Helper()
	const model = "host-model-cpu.node.kubevirt.io/"
	eventually(t, vmTime, func() error {
		for _, node := range c.nodes(t) {
			var n struct {
				Metadata struct{ Labels map[string]string }
			}
			c.get(t, &n, "node", node)
			set := []string{"label", "--overwrite", "node", node}
			for label := range n.Metadata.Labels {
				if name, ok := strings.CutPrefix(label, model); ok {
					set = append(set, "cpu-model-migration.node.kubevirt.io/"+name+"=true")
				}
			}
			if len(set) == 4 {
				return fmt.Errorf("KubeVirt has not labeled %s with its CPU's model", node)
			}
			c.kubectl(t, "annotate", "--overwrite", "node", node, "node-labeller.kubevirt.io/skip-node=true")
			c.kubectl(t, set...)
		}
		return nil
	})
}

// vmManifest returns a VM that boots weft's guest by its kernel.
func vmManifest(name, binding string) string {
	return vmWith(name, "{name: default, "+binding+"}", "{name: default, pod: {}}")
}

// vmWith returns a VM with those interfaces and networks.
func vmWith(name, interfaces, networks string) string {
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
          interfaces: [%[4]s]
      networks: [%[5]s]
`, name, answerPort, guestImage, interfaces, networks)
}

// vmi is the part of a VirtualMachineInstance that the tests read.
type vmi struct {
	Metadata struct{ UID string }
	Status   struct {
		Phase, NodeName string
		Interfaces      []struct {
			Name, IPAddress string
			IPAddresses     []string
		}
		MigrationState struct{ TargetPod, TargetNode, SourcePod, MigrationPolicyName string }
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
	addrs := v.Status.Interfaces[0].IPAddresses
	if len(addrs) != 2 {
		t.Fatalf("the VM has %q, want an address of each family", addrs)
	}
	own := []string{addrs[0] + "/32", addrs[1] + "/128"}
	if binding == "masquerade" {
		own = []string{"10.0.2.2/24", "fd10:0:2::2/128"}
	}
	if !strings.Contains(lease, " dns="+clusterDNS+" ") {
		t.Errorf("the guest has %q, want the cluster's DNS, %s", lease, clusterDNS)
	}
	mtu := "mtu=1430" // VXLAN's header and IPv6's
	if backend() == "none" {
		mtu = "mtu=1500"
	}
	if !strings.Contains(lease, " "+own[0]+" ") || !strings.Contains(lease, mtu) {
		t.Errorf("the guest has %q, want %s and the MTU of the pod, %s", lease, own[0], mtu)
	}
	for i, pool := range []string{"10.77.0.0/20", "fd77::/64"} {
		if p, err := netip.ParseAddr(addrs[i]); err != nil || !netip.MustParsePrefix(pool).Contains(p) {
			t.Errorf("the VM's address %s is not of the pool %s", addrs[i], pool)
		}
	}
	c.awaitIPv6(t, ns, binding, own[1])
	reach := func(t *testing.T) {
		t.Helper()
		for _, p := range pods {
			c.reachBothWays(t, ns, p, addrs)
		}
	}
	t.Run("reach", reach)
	t.Run("agent", func(t *testing.T) { // a new agent compares all pods with their attachments
		ctx, cancel := context.WithTimeout(t.Context(), 2*vmTime)
		defer cancel()
		peers := c.call(ctx, t, ns, addrs)
		began := time.Now()
		c.kubectl(t, "-n", "kube-system", "rollout", "restart", "daemonset/weft")
		c.weftReady(t)
		peers.await(ctx, t, "after other agents have begun")
		for i, p := range peers {
			m := p.MeasureFrom(began)
			t.Logf("IPv%d: the guest's packets: %d ms without one, %d lost; connections: %d ms without a reply", 4+2*i, m.Blackout.Milliseconds(), m.Lost, m.Replies.Milliseconds())
		}
		reach(t)
	})
	t.Run("service", func(t *testing.T) { c.testVMService(t, ns, pods) })
	t.Run("ends", func(t *testing.T) { c.testVMEnds(t, ns, binding, yaml, addrs) })
	t.Run("policy", func(t *testing.T) { c.testVMPolicy(t, ns, pods, addrs) })
	t.Run("hostile", func(t *testing.T) { c.testHostileGuest(t, ns, binding, addrs) })
	t.Run("migration", func(t *testing.T) { c.testMigration(t, ns, binding, addrs) })
	if binding == "weft-direct" {
		t.Run("failed migrations", func(t *testing.T) { c.testFailedMigrations(t, ns, pods, addrs) })
	}
	t.Run("restart", func(t *testing.T) {
		uid := c.kubectl(t, "get", "vmi", "vm", "-n", ns, "-o", "jsonpath={.metadata.uid}")
		c.must(t, "exec", "control", c.virtctl, "restart", "-n", ns, "vm")
		c.restarted(t, ns, uid, binding, own, addrs)
		reach(t)
	})
	if binding == "weft-direct" {
		t.Run("source killed", func(t *testing.T) {
			c.testKilledSource(t, ns, binding, own, addrs)
			reach(t)
		})
		t.Run("node killed", func(t *testing.T) { c.testKilledNode(t, ns, binding, own, addrs) })
	}
}

// restarted waits for another instance of the VM than the one with the UID: it has the addresses that it had.
func (c kubeVirtCluster) restarted(t *testing.T, ns, uid, binding string, own, addrs []string) {
	t.Helper()
	if again := c.running(t, ns, uid).Status.Interfaces[0].IPAddresses; !slices.Equal(again, addrs) {
		t.Errorf("the addresses were %s and are %s after a restart", addrs, again)
	}
	if lease := c.awaitLease(t, ns); !strings.Contains(lease, " "+own[0]+" ") {
		t.Errorf("after a restart the guest has %q, want %s", lease, own[0])
	}
	c.awaitIPv6(t, ns, binding, own[1])
}

// awaitIPv6 waits until the guest has an IPv6 address by DHCPv6 and a default route. KubeVirt sends no router advertisement
// to guests behind masquerade: such a guest configures the route itself.
func (c kubeVirtCluster) awaitIPv6(t *testing.T, ns, binding, want string) {
	t.Helper()
	if binding == "masquerade" {
		eventually(t, vmTime, func() error {
			_, err := c.guest(ns, "vm", "ip -6 route replace fd10:0:2::1 dev eth0 && ip -6 route replace default via fd10:0:2::1 dev eth0")
			return err
		})
	}
	eventually(t, vmTime, func() error {
		out, err := c.guest(ns, "vm", "facts")
		if err == nil && (!strings.Contains(out, "inet6 "+want) || !strings.Contains(out, "ROUTE inet6 default")) {
			err = fmt.Errorf("the guest has %s, want %s and a default route", out, want)
		}
		return err
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

// reachBothWays: pod and guest ping each other, and open connections to each other, in all families of the guest.
func (c kubeVirtCluster) reachBothWays(t *testing.T, ns string, p Pod, addrs []string) {
	t.Helper()
	for _, addr := range addrs {
		c.reachByFamily(t, ns, p, addr)
	}
}

// reachByFamily is reachBothWays in the family of one address.
func (c kubeVirtCluster) reachByFamily(t *testing.T, ns string, p Pod, addr string) {
	t.Helper()
	eventually(t, time.Minute, func() error { return c.askGuest(ns, p, addr) })
	eventually(t, time.Minute, func() error {
		_, err := c.try("kubectl", "-n", ns, "exec", p.Metadata.Name, "--", "ping", "-c", "1", "-W", "2", addr)
		return err
	})
	eventually(t, 2*time.Minute, func() error {
		// Busybox' static wget dies where names are looked up.
		out, err := c.guest(ns, "vm", fmt.Sprintf(
			`ping -c 1 -W 5 %[1]s >/dev/null && printf 'GET /hostname HTTP/1.0\r\n\r\n' | nc -w 5 %[1]s 8080`, p.Status.PodIPs[family(addr)].IP))
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
func (c kubeVirtCluster) testVMPolicy(t *testing.T, ns string, pods []Pod, addrs []string) {
	c.apply(t, ns, friendsOnly)
	friend, other := pods[0], pods[1]
	c.kubectl(t, "-n", ns, "label", "--overwrite", "pod", friend.Metadata.Name, "friend=yes")
	for _, addr := range addrs {
		c.enforced(t, ns, friend, other, addr)
	}
	c.kubectl(t, "-n", ns, "delete", "networkpolicy", "vm")
	for _, addr := range addrs {
		eventually(t, time.Minute, func() error { return c.askGuest(ns, other, addr) })
	}
}

// enforced: the guest answers a pod that the policy allows, and no other one.
func (c kubeVirtCluster) enforced(t *testing.T, ns string, friend, other Pod, addr string) {
	t.Helper()
	eventually(t, time.Minute, func() error {
		if err := c.askGuest(ns, other, addr); err == nil {
			return errors.New("the policy does not deny")
		}
		return nil
	})
	eventually(t, time.Minute, func() error { return c.askGuest(ns, friend, addr) })
	if err := c.askGuest(ns, other, addr); err == nil {
		t.Errorf("the guest answers by %s a pod that the policy does not allow", addr)
	}
}

// friendsOnly is a policy by which pods with a label reach the VM.
const friendsOnly = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: vm}
spec:
  podSelector: {matchLabels: {app: vm}}
  policyTypes: [Ingress]
  ingress: [{from: [{podSelector: {matchLabels: {friend: "yes"}}}]}]
`

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
	// virtctl is a child of the script, and would hold the console permanently: the guest does not reply to what arrives before it listens.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
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
	}
	if !r.OK() {
		t.Error("a healthy cluster fails")
	}
	for _, want := range []string{"(masquerade), icmp", "(weft-direct), icmp", "(bridge), icmp", "(masquerade) migrates", "(weft-direct) migrates"} {
		if !strings.Contains(passed, want) {
			t.Errorf("no check %q passed", want)
		}
	}
}
