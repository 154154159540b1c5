// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/connectivitytest"
	"github.com/weft-net/weft/internal/lab/connectivity"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/plan/explain"
	"github.com/weft-net/weft/internal/vm/launch"
)

// TestVMs: VMs of the manifests run in a lab, one with masquerade and one with weft-direct. Both migrate to another
// node, and their connections continue. Then nodes, pods and VMs reach each other, dual-stack; nothing is left.
func TestVMs(t *testing.T) {
	needVMs(t)
	dir := labDir(t)
	before := takeSnapshot(t, dir)
	up := must(t, "lab", "up", "--nodes", "2", "--from", examples+"/machines", "--addresses", "pools", "--dir", dir)
	if !strings.Contains(up.stderr, "booting 2 VMs") {
		t.Errorf("up printed:\n%s", up.stderr)
	}
	st := status(t, dir)
	if len(st.VMs) != 2 || slices.ContainsFunc(st.VMs, func(m launch.Status) bool {
		return m.Phase != launch.Running || len(m.Interfaces[0].IPs) != 2
	}) {
		t.Errorf("VMs: %+v", st.VMs)
	}
	testKilledMigration(t, dir, "masked", otherNode(t, st, "masked"))
	for _, name := range []string{"masked", "direct"} {
		testMigration(t, dir, st, name)
	}
	testHotPlug(t, dir)
	// The guest is emulated and slow.
	a := weft(t, "lab", "reach", "--dir", dir, "-o", "json", "--timeout", "20s")
	r := decode[connectivity.Report](t, a.stdout)
	if pairs := 4 * 3 * 6; a.code != 0 || r.Pairs != pairs || r.Reached != pairs {
		t.Errorf("reach: exit %d, %d of %d reach, want %d; failed: %+v", a.code, r.Reached, r.Pairs, pairs, r.Failed)
	}
	testExplainVM(t, dir)
	testConnectivityOfVMs(t, dir)
	must(t, "lab", "down", "--dir", dir)
	before.expectSame(t, dir)
}

// needVMs skips the test where VMs cannot run.
func needVMs(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		nettest.SkipMissing(t, "qemu-system-x86_64 is missing")
	}
	nettest.Need(t, "tap")
	if a := weft(t, "vm", "image"); a.code != 0 {
		nettest.SkipMissing(t, a.stderr)
	}
}

// Where addresses stay on their nodes, the connectivity test pings VMs, and skips the migration: nothing is wrong.
func TestConnectivityOfVMsWithoutPools(t *testing.T) {
	needVMs(t)
	vm, err := os.ReadFile(examples + "/machines/masquerade.yaml")
	if err != nil {
		t.Fatal(err)
	}
	from, dir := t.TempDir(), labDir(t)
	if err := os.WriteFile(filepath.Join(from, "vm.yaml"), vm, 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, "lab", "up", "--nodes", "2", "--from", from, "--dir", dir)
	r := connectivityTest(t, dir, "--only", "vms", "--vms", "--disruptive", "--wait", "30s")
	test := r.Tests[0]
	if !r.OK() || len(test.Rows) != 2*2 || !strings.Contains(strings.Join(test.Skipped, "\n"), "--addresses pools") {
		t.Errorf("%+v", r)
	}
}

// The connectivity test of a lab boots a VM with each binding, which pods of both nodes reach, and leaves nothing of them.
func TestConnectivityOfBootedVMs(t *testing.T) {
	needVMs(t)
	dir := labDir(t)
	must(t, "lab", "up", "--nodes", "2", "--from", examples2(t), "--addresses", "pools", "--dir", dir)
	r := connectivityTest(t, dir, "--only", "vms", "--boot-vms")
	var rows []string
	for _, row := range r.Tests[0].Rows {
		rows = append(rows, row.Name)
	}
	// Two clients and two families; a guest with the bridge binding has no IPv6 address.
	if all := strings.Join(rows, "\n"); !r.OK() || len(rows) != 2*2*2+2 || strings.Count(all, "(masquerade)") != 4 ||
		strings.Count(all, "(weft-direct)") != 4 || strings.Count(all, "(bridge)") != 2 {
		t.Errorf("%+v", r)
	}
	awaitNoTest(t, dir)
	within(t, 30*waitUnit, "the end of the VMs", func() bool {
		for _, form := range []string{"nodes/*/machines/*connectivity*", "store/pod-*virt-launcher*", "store/virtualmachine*"} {
			if left, err := filepath.Glob(filepath.Join(dir, form)); err != nil || len(left) > 0 {
				return false
			}
		}
		return true
	})
	must(t, "lab", "down", "--dir", dir)
}

// testInterruptedMigration: of a connectivity test that is interrupted while a VM migrates, no pod and no AddressMove
// is left.
func testInterruptedMigration(t *testing.T, dir string) {
	t.Helper()
	before := storedMigrations(t, dir)
	cmd := command(t, "connectivity-test", "--dir", dir, "--only", "vms", "--vms", "--disruptive", "--wait", "30s")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	within(t, 60*waitUnit, "a target pod", func() bool { return len(storedMigrations(t, dir)) > len(before) })
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	within(t, 60*waitUnit, "the end of what the migration had created", func() bool {
		return len(storedMigrations(t, dir)) <= len(before)
	})
	awaitNoTest(t, dir)
}

// storedMigrations returns the names of files in a lab's store of VMs' pods and AddressMoves.
func storedMigrations(t *testing.T, dir string) (out []string) {
	t.Helper()
	for _, pattern := range []string{"pod-default-virt-launcher-*", "addressmove-*"} {
		found, err := filepath.Glob(filepath.Join(dir, "store", pattern))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, found...)
	}
	return out
}

// testExplainVM: a VM is explained by its name: its guest answers for its address, and a guest that does not is named.
func testExplainVM(t *testing.T, dir string) {
	t.Helper()
	for _, m := range status(t, dir).VMs {
		r, _ := explained(t, dir, "172.18.0.1", m.Name)
		if len(r.Faults()) > 0 {
			t.Errorf("%s: %+v", m.Name, r.Faults())
		}
		if !r.To.Interface.VM || "default/"+m.Name == r.To.Name {
			t.Errorf("%s is no VM's pod: %+v", m.Name, r.To)
		}
		want := map[string]string{
			"masked": "the guest has its address 10.0.2.2, at ", "direct": "tap0 and eth0 are joined (as recorded)",
		}[m.Name]
		has := slices.ContainsFunc(r.Hops(), func(h explain.Hop) bool {
			return slices.ContainsFunc(h.Evidence, func(e string) bool { return strings.HasPrefix(e, want) })
		})
		if !has {
			t.Errorf("%s: nothing says that %s: %+v", m.Name, want, r.Hops())
		}
		if m.Name != "masked" { // the node has a permanent entry for the address of another guest
			continue
		}
		pod := r.To.Name
		inPod := func(line string) { must(t, "lab", "exec", "--dir", dir, pod, "--", "sh", "-c", line) }
		inPod("nft 'add table netdev mute; add chain netdev mute c { type filter hook ingress device tap0 priority 0; policy drop; }'")
		inPod("ip neigh flush all")
		r, _ = explained(t, dir, "172.18.0.1", m.Name)
		if f := r.Faults(); len(f) == 0 || f[0].Object != "guest of pod "+pod {
			t.Errorf("%s, whose guest is silent: %+v", m.Name, f)
		}
		inPod("nft delete table netdev mute")
	}
}

// testConnectivityOfVMs: the connectivity test pings guests, migrates one, and names what is in the way to one.
func testConnectivityOfVMs(t *testing.T, dir string) {
	t.Helper()
	testInterruptedMigration(t, dir)
	testKilledMigration(t, dir, "direct", otherNode(t, status(t, dir), "direct")) // its pod is not the VM's
	healthy := connectivityTest(t, dir, "--only", "vms", "--vms", "--disruptive", "--wait", "30s")
	rows := healthy.Tests[0].Rows
	if !healthy.OK() || len(rows) != 2*2*2+1 || !strings.Contains(rows[len(rows)-1].Name, "migrates") {
		t.Errorf("%+v", healthy)
	}
	for _, node := range []string{"node1", "node2"} {
		inNode(t, dir, node, "nft", "add table inet fw; add chain inet fw f { type filter hook forward priority 10; }; "+
			"add rule inet fw f icmp type echo-request drop")
		defer inNode(t, dir, node, "nft", "delete table inet fw")
	}
	r := connectivityTest(t, dir, "--only", "vms", "--vms", "--wait", "1s")
	named := slices.ContainsFunc(r.Tests[0].Rows, func(row connectivitytest.Row) bool {
		return strings.Contains(strings.Join(row.Diagnosis, "\n"), "icmp type 8 drop")
	})
	if r.Tests[0].Failed() == 0 || !named {
		t.Errorf("with a firewall: %+v", r)
	}
}

// testHotPlug hot-plugs a network interface into a running VM, sets its link down, and unplugs it.
func testHotPlug(t *testing.T, dir string) {
	t.Helper()
	network :=
		`{"apiVersion":"k8s.cni.cncf.io/v1","kind":"NetworkAttachmentDefinition","metadata":{"name":"green","namespace":"default"},"spec":{"config":` +
			`"{\"cniVersion\":\"1.0.0\",\"type\":\"bridge\",\"bridge\":\"green\",\"ipam\":{\"type\":\"host-local\",\"dataDir\":\"` + dir + `/green\",\"subnet\":\"10.41.0.0/24\"}}"}}`
	// A plugin of this kind does not read the MAC address that a pod requests.
	routed := strings.NewReplacer("green", "routed", `\"bridge\",\"bridge\":\"green\"`, `\"ptp\"`).Replace(network)
	for name, text := range map[string]string{"green": network, "routed": routed} {
		if err := os.WriteFile(filepath.Join(dir, "store", name+".json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range status(t, dir).VMs {
		if m.Name != "masked" {
			continue
		}
		on := filepath.Dir(m.Dir)
		for _, c := range []struct{ verb, want string }{
			{"attach masked green --network green", "10.41.0.2"},
			{"link masked green down", "down"},
			{"detach masked green", "default"},
		} {
			out := must(t, append(append([]string{"vm"}, strings.Fields(c.verb)...), "--dir", on)...).stdout
			if !strings.Contains(out, c.want) || strings.Contains(out, "green") != (c.want != "default") {
				t.Errorf("%s: %s", c.verb, out)
			}
		}
		for args, want := range map[string]string{
			"--network nonsuch": `network "red" of VM default/masked: NetworkAttachmentDefinition default/nonsuch `,
			// The agent's view of the pod.
			"--network routed --mac 02:00:00:00:00:09": "networks of VM default/masked: pod default/",
		} {
			a := weft(t, append([]string{"vm", "attach", "masked", "red", "--dir", on}, strings.Fields(args)...)...)
			if a.code != 1 || !strings.Contains(a.stderr, want) {
				t.Errorf("exit %d: %s", a.code, a.stderr)
			}
		}
		pod := strings.TrimPrefix(m.Pod, "default/")
		within(t, 10*waitUnit, "the end of the pod's links", func() bool {
			return !strings.Contains(weft(t, "lab", "exec", "--dir", dir, "default/"+pod, "--", "ip", "-br", "link").stdout,
				"pod")
		})
	}
}
