// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/vm/downtime"
)

// callers are the peers of a VM that migrates, one of each family, in a pod on a node where the VM does not run.
type callers []*downtime.Peer

// call opens two connections of each family from a pod on node3 to the guest, and lets the guest send it a packet each 5 ms.
func (c kubeVirtCluster) call(ctx context.Context, t *testing.T, ns string, addrs []string) callers {
	t.Helper()
	peer := c.podOn(t, ns, "node3")
	var own []string
	for _, ip := range peer.Status.PodIPs {
		own = append(own, ip.IP)
	}
	return c.callFrom(ctx, t, ns, peer, own, addrs)
}

// callFrom opens two connections from each of the pod's addresses to the guest's address of the same place, and lets the
// guest send a packet back each 5 ms.
func (c kubeVirtCluster) callFrom(ctx context.Context, t *testing.T, ns string, peer Pod, own, addrs []string) (all callers) {
	t.Helper()
	pod, err := netns.Open(netnsOf(t, c.kubectl(t, "-n", ns, "get", "pod", peer.Metadata.Name, "-o",
		"jsonpath={.status.containerStatuses[0].containerID}")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pod.Close() })
	work := []string{"echo 7", "talk 19 10ms"}
	for i := range addrs {
		to := netip.AddrPortFrom(netip.MustParseAddr(own[i]), 9000)
		p := &downtime.Peer{Now: time.Now}
		if err := p.Listen(ctx, pod, to); err != nil {
			t.Fatal(err)
		}
		all, work = append(all, p), append(work, "udp "+to.String()+" 5ms")
	}
	eventually(t, 2*time.Minute, func() error {
		_, err := c.guest(ns, "vm", "[ -e /run/talks ] || { touch /run/talks; for w in '"+strings.Join(work, "' '")+
			"'; do guest-tools $w </dev/null >/dev/null 2>&1 & done; }")
		return err
	})
	for i, p := range all {
		guest := netip.MustParseAddr(addrs[i])
		if err := errors.Join(
			p.Echo(ctx, pod, netip.AddrPortFrom(guest, 7)), p.ReadStream(ctx, pod, netip.AddrPortFrom(guest, 19), ""),
		); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// await waits until packets, replies and lines have arrived that are newer than the call, at all peers.
func (all callers) await(ctx context.Context, t *testing.T, when string) {
	t.Helper()
	now := time.Now()
	for _, p := range all {
		if err := p.Await(ctx, now); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
	}
}

// migrations returns how many migrations a test makes: more of them for a median.
func migrations(t *testing.T) int { return fromEnv(t, "WEFT_KUBEVIRT_MIGRATIONS", 2) }

// testMigration: KubeVirt migrates the VM, while a pod on a third node has two connections of each family to it, and the
// guest sends it a packet each 5 ms. No connection ends and no line is lost.
func (c kubeVirtCluster) testMigration(t *testing.T, ns, binding string, addrs []string) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(migrations(t)+1)*vmTime)
	defer cancel()
	c.measureMigrations(ctx, t, ns, binding, c.call(ctx, t, ns, addrs))
	var v vmi
	c.get(t, &v, "vmi", "vm", "-n", ns)
	if got := v.Status.Interfaces[0].IPAddresses; !slices.Equal(got, addrs) {
		t.Errorf("the addresses were %s and are %s", addrs, got)
	}
}

// testBridgeMigration migrates a VM with KubeVirt's binding bridge on the pod network, which KubeVirt permits by an
// annotation. Its guest has IPv4 only.
func (c kubeVirtCluster) testBridgeMigration(t *testing.T) {
	ns := c.namespace(t)
	c.rollOut(t, ns, "web", 3)
	labels := "metadata: {labels: {app: vm}"
	c.apply(t, ns, strings.Replace(vmManifest("vm", "bridge: {}"), labels,
		labels+`, annotations: {kubevirt.io/allow-pod-bridge-network-live-migration: ""}`, 1))
	v := c.running(t, ns, "")
	c.awaitLease(t, ns)
	c.testMigration(t, ns, "bridge", v.Status.Interfaces[0].IPAddresses[:1])
}

// measureMigrations migrates the VM under its callers, and prints how long they had no reply.
func (c kubeVirtCluster) measureMigrations(ctx context.Context, t *testing.T, ns, binding string, peers callers) {
	t.Helper()
	var tooks []time.Duration
	blackouts, lost, replies := make([][]time.Duration, len(peers)), make([][]int, len(peers)), make([][]time.Duration, len(peers))
	for range migrations(t) {
		peers.await(ctx, t, "before the migration")
		from, began := c.where(t, ns), time.Now()
		if phase := c.migrate(t, ns); phase != "Succeeded" {
			t.Fatalf("KubeVirt: the migration has %s: %s", phase, c.kubectl(t, "-n", ns, "get", "events"))
		}
		took := time.Since(began)
		tooks = append(tooks, took)
		peers.await(ctx, t, "after the migration")
		if now := c.where(t, ns); now == from {
			t.Errorf("the VM is still on %s", from)
		}
		for i, p := range peers {
			m := p.MeasureFrom(began)
			t.Logf("%s, IPv%d: migrated from %s in %.1f s with 0 resets; the guest's packets: %d ms without one, %d lost; connections: %d ms without a reply, %d ms without a line",
				binding, 4+2*i, from, took.Seconds(), m.Blackout.Milliseconds(), m.Lost, m.Replies.Milliseconds(), m.Stream.Milliseconds())
			blackouts[i], lost[i], replies[i] = append(blackouts[i], m.Blackout), append(lost[i], m.Lost), append(replies[i], m.Replies)
		}
	}
	for i := range peers {
		t.Logf("%s, IPv%d, median (least to most) of %d migrations: %s; the guest is silent for %s, of its packets %s are lost; without a reply %s",
			binding, 4+2*i, len(tooks), spread(tooks), spread(blackouts[i]), spread(lost[i]), spread(replies[i]))
	}
}

// spread prints the median, the least and the most of some values.
func spread[T int | time.Duration](all []T) string {
	all = slices.Sorted(slices.Values(all))
	show := func(v T) string {
		if d, ok := any(v).(time.Duration); ok {
			return d.Round(time.Millisecond).String()
		}
		return fmt.Sprint(v)
	}
	return fmt.Sprintf("%s (%s to %s)", show(all[len(all)/2]), show(all[0]), show(all[len(all)-1]))
}

// vmim is the part of a VirtualMachineInstanceMigration that the tests read.
type vmim struct {
	Metadata struct{ Name, CreationTimestamp string }
	Status   struct{ Phase string }
}

// migrations returns the VM's migrations.
func (c kubeVirtCluster) migrations(ns string) (all []vmim, err error) {
	var list struct{ Items []vmim }
	out, err := c.try("kubectl", "get", "virtualmachineinstancemigrations.kubevirt.io", "-n", ns, "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &list)
	}
	return list.Items, err
}

// startMigration starts a migration, and returns its name.
func (c kubeVirtCluster) startMigration(t *testing.T, ns string) string {
	t.Helper()
	before, err := c.migrations(ns)
	if err != nil {
		t.Fatal(err)
	}
	c.must(t, "exec", "control", c.virtctl, "migrate", "-n", ns, "vm")
	after, err := c.migrations(ns)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range after {
		if !slices.ContainsFunc(before, func(o vmim) bool { return o.Metadata.Name == m.Metadata.Name }) {
			return m.Metadata.Name
		}
	}
	t.Fatalf("virtctl migrate has created no migration: %+v", after)
	return ""
}

// phase returns the phase of a migration.
func (c kubeVirtCluster) phase(ns, name string) (string, error) {
	return c.try("kubectl", "get", "virtualmachineinstancemigrations.kubevirt.io", name, "-n", ns, "-o", "jsonpath={.status.phase}")
}

// gone is the phase of a migration that was canceled: KubeVirt deletes it.
const gone = "gone"

// ended waits until a migration has succeeded or failed, and returns its phase.
func (c kubeVirtCluster) ended(t *testing.T, ns, name string) (phase string) {
	t.Helper()
	eventually(t, vmTime, func() (err error) {
		phase, err = c.phase(ns, name)
		switch {
		case err != nil && strings.Contains(err.Error(), "(NotFound)"):
			phase, err = gone, nil
		case err == nil && phase != "Succeeded" && phase != "Failed":
			err = fmt.Errorf("the migration has %s", phase)
		}
		return err
	})
	return phase
}

// migrate migrates the VM, and returns the phase in which that ended.
func (c kubeVirtCluster) migrate(t *testing.T, ns string) string {
	t.Helper()
	return c.ended(t, ns, c.startMigration(t, ns))
}

// slowly lets the migrations in a namespace have a wire on which they do not complete soon, and ends them after some seconds. It
// returns the name of the policy, which no policy with another time has: KubeVirt may not have learned yet that one of
// the same name was deleted and created again. The policy's own bandwidthPerMigration is not enough: QEMU sends fifty times
// as much in the first seconds.
func (c kubeVirtCluster) slowly(t *testing.T, ns string, seconds int) (policy string, normally func()) {
	t.Helper()
	policy = fmt.Sprintf("%s-%d", ns, seconds)
	c.kubectl(t, "label", "--overwrite", "namespace", ns, "slow="+ns)
	c.apply(t, ns, fmt.Sprintf(`
apiVersion: migrations.kubevirt.io/v1alpha1
kind: MigrationPolicy
metadata: {name: %[1]s}
spec:
  allowAutoConverge: false
  completionTimeoutPerGiB: %[2]d
  selectors: {namespaceSelector: {slow: %[3]s}}
`, policy, seconds, ns))
	fast := c.slowWires(t)
	return policy, func() {
		fast()
		c.kubectl(t, "delete", "migrationpolicies.migrations.kubevirt.io", policy)
	}
}

// slowWires limits what the nodes' virt-handlers receive, through which migrations go. The function that it returns removes the
// limits of those that are still there.
func (c kubeVirtCluster) slowWires(t *testing.T) (fast func()) {
	t.Helper()
	var handlers struct{ Items []Pod }
	c.get(t, &handlers, "pods", "-n", "kubevirt", "-l", "kubevirt.io=virt-handler", "--field-selector=status.phase=Running")
	if len(handlers.Items) < 2 {
		t.Fatalf("there are %d running virt-handlers", len(handlers.Items))
	}
	links := map[string]string{}
	for _, p := range handlers.Items {
		route := c.must(t, "exec", p.Spec.NodeName, "ip", "-o", "route", "get", p.Status.PodIP)
		_, after, _ := strings.Cut(route, " dev ")
		link, _, ok := strings.Cut(after, " ")
		if !ok || !strings.HasPrefix(link, "cali") {
			t.Fatalf("%s on %s: %s is not the route to a pod", p.Metadata.Name, p.Spec.NodeName, route)
		}
		c.must(t, "exec", p.Spec.NodeName, "tc", "qdisc", "replace", "dev", link, "root", "tbf", "rate", slowRate,
			"burst", "64kb", "latency", "500ms")
		links[p.Spec.NodeName] = link
	}
	return func() {
		for node, link := range links {
			if _, err := c.try("exec", node, "ip", "link", "show", "dev", link); err == nil {
				c.must(t, "exec", node, "tc", "qdisc", "delete", "dev", link, "root")
			}
		}
	}
}

// transferring starts a migration that is slow by a policy, and waits until its target is in use: QEMU runs in
// its pod. A migration that KubeVirt started before it had learned of the policy is another one: it is repeated.
func (c kubeVirtCluster) transferring(t *testing.T, ns, policy string) (name string, v vmi) {
	t.Helper()
	for range 5 {
		name = c.startMigration(t, ns)
		phase := ""
		eventually(t, vmTime, func() (err error) {
			phase, err = c.phase(ns, name)
			if err == nil && phase != "Running" && phase != "Succeeded" && phase != "Failed" {
				err = fmt.Errorf("the migration has %s", phase)
			}
			return err
		})
		c.get(t, &v, "vmi", "vm", "-n", ns)
		if v.Status.MigrationState.MigrationPolicyName == policy {
			if phase != "Running" {
				t.Fatalf("the migration has already %s: %s", phase, c.kubectl(t, "-n", ns, "get", "events"))
			}
			return name, v
		}
		c.ended(t, ns, name)
	}
	t.Fatalf("KubeVirt does not apply the migration policy %s: %+v", policy, v)
	return "", v
}

// writePages lets the guest have memory that is not empty, which a migration must transfer: KubeVirt limits it to 1 MiB/s at
// the least.
func (c kubeVirtCluster) writePages(t *testing.T, ns string) {
	t.Helper()
	eventually(t, vmTime, func() error {
		_, err := c.guest(ns, "vm", "dd if=/dev/urandom of=/run/memory bs=1M count=40 2>/dev/null && sync")
		return err
	})
}

// testFailedMigrations: migrations that are canceled, that KubeVirt ends because they take too long, and whose target is
// killed. Each time the VM
// continues on its node with its addresses, connections and policy, and nothing is left of the attempt. Then it migrates.
func (c kubeVirtCluster) testFailedMigrations(t *testing.T, ns string, pods []Pod, addrs []string) {
	c.apply(t, ns, friendsOnly)
	friend, other := pods[0], pods[1]
	c.kubectl(t, "-n", ns, "label", "--overwrite", "pod", "-l", "app=web", "friend-")
	for _, p := range []Pod{friend, c.podOn(t, ns, "node3")} {
		c.kubectl(t, "-n", ns, "label", "--overwrite", "pod", p.Metadata.Name, "friend=yes")
	}
	defer c.kubectl(t, "-n", ns, "delete", "networkpolicy", "vm")
	ctx, cancel := context.WithTimeout(t.Context(), 6*vmTime)
	defer cancel()
	peers := c.call(ctx, t, ns, addrs)
	c.writePages(t, ns)
	links := c.podLinks(t)
	for _, one := range []struct {
		name    string
		seconds int // for which KubeVirt lets the migration run
		fail    func(t *testing.T, v vmi)
	}{
		{"canceled", 3600, func(t *testing.T, _ vmi) {
			c.must(t, "exec", "control", c.virtctl, "migrate-cancel", "-n", ns, "vm")
		}},
		{"too slow", 5, func(*testing.T, vmi) {}},
		{"target killed", 3600, func(t *testing.T, v vmi) { c.killLauncher(t, ns, v.Status.MigrationState.TargetPod) }},
	} {
		t.Run(one.name, func(t *testing.T) {
			policy, normally := c.slowly(t, ns, one.seconds)
			defer normally()
			began := time.Now()
			name, v := c.transferring(t, ns, policy)
			one.fail(t, v)
			if phase := c.ended(t, ns, name); phase != "Failed" && (phase != gone || one.name != "canceled") {
				t.Errorf("the migration has %s", phase)
			}
			peers.await(ctx, t, "after the migration")
			for i, p := range peers {
				m := p.MeasureFrom(began)
				t.Logf("IPv%d: the guest's packets: %d ms without one, %d lost", 4+2*i, m.Blackout.Milliseconds(), m.Lost)
			}
			if now := c.where(t, ns); now != v.Status.NodeName {
				t.Errorf("the VM is on %s, and was on %s", now, v.Status.NodeName)
			}
			for _, addr := range addrs {
				c.enforced(t, ns, friend, other, addr)
			}
			c.nothingLeft(t, links)
		})
	}
	if phase := c.migrate(t, ns); phase != "Succeeded" {
		t.Errorf("after the failed ones a migration has %s", phase)
	}
	peers.await(ctx, t, "after the last migration")
	for _, addr := range addrs {
		c.enforced(t, ns, friend, other, addr)
	}
}

// testKilledSource: the VM's pod is killed while it migrates. The VM is started again with its addresses, and of both pods
// nothing is left.
func (c kubeVirtCluster) testKilledSource(t *testing.T, ns, binding string, own, addrs []string) {
	links := c.podLinks(t)
	policy, normally := c.slowly(t, ns, 3600)
	defer normally()
	uid := c.kubectl(t, "get", "vmi", "vm", "-n", ns, "-o", "jsonpath={.metadata.uid}")
	_, v := c.transferring(t, ns, policy)
	c.killLauncher(t, ns, v.Status.MigrationState.SourcePod)
	c.restarted(t, ns, uid, binding, own, addrs)
	c.nothingLeft(t, links)
}

// killLauncher kills the processes of a VM's pod: virt-launcher, libvirt and QEMU.
func (c kubeVirtCluster) killLauncher(t *testing.T, ns, pod string) {
	t.Helper()
	id := c.kubectl(t, "-n", ns, "get", "pod", pod, "-o", `jsonpath={.status.containerStatuses[?(@.name=="compute")].containerID}`)
	_, id, ok := strings.Cut(id, "://")
	all, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil || !ok {
		t.Fatalf("container %q of %s: %v", id, pod, err)
	}
	killed := 0
	for _, file := range all {
		text, err := os.ReadFile(file)
		pid, bad := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if errors.Join(err, bad) == nil && strings.Contains(string(text), id) && syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	if killed == 0 {
		t.Fatalf("no process is in container %s of %s", id, pod)
	}
}

// podLinks returns how many pods' links the nodes have.
func (c kubeVirtCluster) podLinks(t *testing.T) int {
	t.Helper()
	n := 0
	for _, node := range c.nodes(t) {
		n += strings.Count(c.must(t, "exec", node, "ip", "-o", "link", "show", "type", "veth"), ": cali")
	}
	return n
}

// nothingLeft waits until there is no AddressMove, no more links of pods than before, and nothing that the audit of
// addresses finds.
func (c kubeVirtCluster) nothingLeft(t *testing.T, links int) {
	t.Helper()
	eventually(t, 2*time.Minute, func() error {
		out, err := c.try("kubectl", "get", "addressmoves", "-A", "-o", "name")
		if err == nil && strings.TrimSpace(out) != "" {
			err = fmt.Errorf("moves: %s", out)
		}
		if n := c.podLinks(t); err == nil && n > links {
			err = fmt.Errorf("%d links of pods, and there were %d", n, links)
		}
		return err
	})
	eventually(t, 2*time.Minute, func() error {
		_, err := c.try("exec", "control", c.weft, "ipam", "check")
		return err
	})
}
