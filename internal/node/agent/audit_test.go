// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// audit returns the output of `weft ipam check --agent` on a world's node.
func (w *world) audit(store string, flags ...string) string {
	w.t.Helper()
	cmd := exec.Command(filepath.Join(os.Getenv(binVar), "weft"),
		append([]string{"ipam", "check", "--store-dir", store, "--agent"}, flags...)...)
	var out []byte
	if err := w.node.Do(func() (err error) { out, _ = cmd.CombinedOutput(); return nil }); err != nil {
		w.t.Fatal(err)
	}
	return string(out)
}

// TestAudit creates leaks on an agent's node: memory, ledger and kernel are compared.
func TestAudit(t *testing.T) {
	nettest.EndToEnd(t)
	w := newWorld(t)
	store := w.path("store")
	if err := os.Mkdir(store, 0o755); err != nil {
		t.Fatal(err)
	}
	w.configured("metrics: {address: '127.0.0.1:9119'}\n")
	w.args = []string{"--config", w.path("weft.yaml"), "--store-dir", store}
	w.start()
	ns := nettest.NS(t, "pod")
	r, err := w.add(w.list("1.0.0", shared), "c1", ns)
	if err != nil {
		t.Fatal(err)
	}
	addr := r.IPs[0].Address.IP.String()
	if got := w.audit(store); !strings.Contains(got, ", 0 findings\n") {
		t.Errorf("all is well, and it says: %s", got)
	}
	free := strings.TrimSuffix(addr, "4") + "5" // the second of the node's first block
	nettest.Run(t, ns, "ip", "addr", "add", free+"/32", "dev", "lo")
	// What a pod lacks is put back once, and left to the pod when it goes again.
	nettest.Run(t, ns, "ip", "addr", "flush", "dev", "eth0")
	for until := time.Now().Add(time.Minute); !strings.Contains(nettest.Run(t, ns, "ip", "addr", "show", "dev", "eth0"),
		" "+addr+"/"); {
		if time.Now().After(until) {
			t.Fatalf("the address is not put back:\n%s", w.log())
		}
		time.Sleep(20 * time.Millisecond)
	}
	nettest.Run(t, ns, "ip", "addr", "flush", "dev", "eth0")
	got := w.audit(store)
	for _, want := range []string{
		"address " + free + " is on lo in " + ns.Path() + ", and this node may allocate it again",
		"address " + addr + " is held for interface eth0 of container c1, which does not have it",
		"2 findings are left",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("missing: %s in %s", want, got)
		}
	}
	w.stop()
	if got := w.audit(store); !strings.Contains(got, "check that the agent runs and that metrics.address is set") {
		t.Errorf("without an agent: %s", got)
	}
}

// TestAuditOfRanges: addresses of a node's own range are in host-local's files. A file without an attachment is found,
// and its address counted as in use; an attachment without its file is found, too.
func TestAuditOfRanges(t *testing.T) {
	nettest.EndToEnd(t)
	w := newWorld(t)
	store := w.path("store")
	if err := os.Mkdir(store, 0o755); err != nil {
		t.Fatal(err)
	}
	node := "{apiVersion: v1, kind: Node, metadata: {name: n1}, spec: {podCIDRs: [10.8.0.0/16]}}"
	if err := os.WriteFile(store+"/node.yaml", []byte(node), 0o600); err != nil {
		t.Fatal(err)
	}
	w.configured("metrics: {address: '127.0.0.1:9119'}\n")
	w.args = []string{"--config", w.path("weft.yaml"), "--store-dir", store}
	w.start()
	list := w.list("1.1.0", w.networks()["bridge"])
	for _, id := range []string{"c1", "c2"} {
		if _, err := w.add(list, id, nettest.NS(t, id)); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.audit(store); !strings.Contains(got, ", 0 findings\n") {
		t.Errorf("all is well, and it says: %s", got)
	}
	dir := w.path("addresses", "net")
	if err := os.WriteFile(filepath.Join(dir, "10.8.0.77"), []byte("gone\r\neth0"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := w.audit(store)
	for _, want := range []string{
		"address 10.8.0.77 is reserved in " + dir +
			" for interface eth0 of container gone, and the ledger has no such attachment", "1 finding is left",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("missing: %s in %s", want, got)
		}
	}
	cmd := exec.Command(filepath.Join(os.Getenv(binVar), "weft"), "ipam", "show", "--store-dir", store, "--agent")
	var out []byte
	if err := w.node.Do(func() (err error) { out, err = cmd.CombinedOutput(); return err }); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	if got := strings.Join(strings.Fields(string(out)), " "); got !=
		"NODE RANGE TOTAL USED FREE n1 10.8.0.0/16 65533 3 65530" {
		t.Error(got)
	}
	if err := w.cni.GCNetworkList(w.ctx(), list, &libcni.GCArgs{
		ValidAttachments: []types.GCAttachment{{ContainerID: "c1", IfName: "eth0"}, {ContainerID: "c2", IfName: "eth0"}},
	}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "10.8.0.77")); err == nil {
		t.Error("a GC of the network has not freed it, as the finding says")
	}
}

// TestLeakedRanges: sandboxes are killed while their agent loses its state directory. Without a record their addresses
// stay in host-local's files. The audit finds them and changes nothing; with --fix it releases them, but none of a pod
// that runs.
func TestLeakedRanges(t *testing.T) {
	nettest.EndToEnd(t)
	w := newWorld(t)
	store := t.TempDir()
	node := "{apiVersion: v1, kind: Node, metadata: {name: n1}, spec: {podCIDRs: [10.8.0.0/24]}, " +
		"status: {addresses: [{type: InternalIP, address: 192.168.77.1}]}}"
	if err := os.WriteFile(store+"/node.yaml", []byte(node), 0o600); err != nil {
		t.Fatal(err)
	}
	w.configured(fmt.Sprintf("install: {confDir: %q}\nmetrics: {address: '127.0.0.1:9119'}\nnetwork: {mode: cluster}\n",
		w.path("net.d")))
	w.args = []string{"--config", w.path("weft.yaml"), "--store-dir", store, "--address-dir", w.path("addresses")}
	w.start()
	list := w.ownList()
	addrs, spaces := map[string]string{}, map[string]*netns.NS{}
	for _, id := range []string{"runs", "later", "killed1", "killed2"} {
		spaces[id] = nettest.NS(t, id)
		r, err := w.add(list, id, spaces[id])
		if err != nil {
			t.Fatal(err)
		}
		addrs[id] = r.IPs[0].Address.IP.String()
	}
	w.kill()
	if err := os.RemoveAll(w.path("state")); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"killed1", "killed2"} {
		nettest.Run(t, spaces[id], "ip", "link", "delete", "eth0")
	}
	w.start()
	if _, err := w.add(list, "new", nettest.NS(t, "new")); err != nil {
		t.Fatal(err)
	}
	files := func() string { return w.files("addresses") }
	before := files()
	got := w.audit(store)
	for _, id := range []string{"killed1", "killed2"} {
		if want := "address " + addrs[id] + " is reserved in "; !strings.Contains(got, want) {
			t.Errorf("missing: %s in %s", want, got)
		}
	}
	if n := strings.Count(got, "(--fix: the address is free)"); n != 2 {
		t.Errorf("--fix would release %d addresses, want 2: %s", n, got)
	}
	if after := files(); after != before {
		t.Errorf("without --fix the files change from\n%s\nto\n%s", before, after)
	}
	got = w.audit(store, "--fix")
	after := files()
	for id, addr := range addrs {
		if kept := !strings.HasPrefix(id, "killed"); strings.Contains(after, addr+"\n") != kept {
			t.Errorf("%s of %s: kept is not %t\n%s\n%s", addr, id, kept, after, got)
		}
	}
}
