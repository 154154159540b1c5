// SPDX-License-Identifier: Apache-2.0

package vmrun

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/vm/launch"
)

func TestMain(m *testing.M) { os.Exit(nettest.MainWithPrograms(m)) }

const manifest = `apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: web, namespace: shop}
spec:
  terminationGracePeriodSeconds: 0
  domain:
    devices:
      interfaces:
      - {name: default, %s}
  networks:
  - {name: default, pod: {}}
`

// world is a node whose pods are attached to a bridge, without an agent.
type world struct {
	t        *testing.T
	dir, bin string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		nettest.SkipMissing(t, "qemu-system-x86_64 is missing")
	}
	nettest.Need(t, "tap", "bridge")
	w := &world{t: t, dir: t.TempDir(), bin: nettest.Programs(t)}
	if out, err := w.try("vm", "image"); err != nil {
		nettest.SkipMissing(t, out)
	}
	conf := `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"bridge","bridge":"` + "br" + `","isGateway":true,
		"ipam":{"type":"host-local","dataDir":"` + w.dir + `/ipam","ranges":[[{"subnet":"10.50.0.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}}]}`
	w.write("net.d/pods.conflist", conf)
	t.Cleanup(func() {
		if out, err := w.try("vm", "stop", "--all", "--force", "--dir", w.dir+"/vms"); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		_, _ = nettest.Try(nil, "ip", "link", "del", "br")
		w.awaitExit("sandbox serve")
	})
	return w
}

func (w *world) write(name, text string) string {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// try runs weft.
func (w *world) try(args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(w.bin, "weft"), args...)
	cmd.Env = append(os.Environ(), "WEFT_JOURNAL_DIR="+w.dir+"/journal")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (w *world) weft(args ...string) string {
	w.t.Helper()
	out, err := w.try(args...)
	if err != nil {
		w.t.Fatalf("weft %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// run executes weft vm run with all directories in the world's, without an agent.
func (w *world) run(binding string) (string, error) { return w.runWithAgent("none.sock", binding) }

// runWithAgent executes weft vm run with the agent at a socket.
func (w *world) runWithAgent(socket, binding string) (string, error) {
	w.t.Helper()
	at := func(name string) string { return filepath.Join(w.dir, name) }
	return w.try("vm", "run", "--detach", "--state-dir", at("sandbox"), "--cni-conf-dir", at("net.d"), "--cni-bin-dir",
		filepath.Join(w.bin, "cni"),
		"--cni-cache-dir", at("cache"), "--log-dir", at("logs"), "--dir", at("vms"), "--records-dir", at("records"),
		"--agent-socket", at(socket),
		w.write("vm.yaml", fmt.Sprintf(manifest, binding)))
}

func (w *world) status() launch.Status {
	w.t.Helper()
	var all []launch.Status
	if err := json.Unmarshal([]byte(w.weft("vm", "list", "-o", "json", "--dir", w.dir+"/vms")), &all); err != nil ||
		len(all) != 1 {
		w.t.Fatalf("%v %v", all, err)
	}
	return all[0]
}

// processes returns the processes whose command line contains a text.
func processes(text string) (out []int) {
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range paths {
		b, _ := os.ReadFile(path)
		if !strings.Contains(strings.ReplaceAll(string(b), "\x00", " "), text) {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(path, "/proc/%d/cmdline", &pid); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

// awaitExit waits until no process has the text in its command line.
func (w *world) awaitExit(text string) {
	w.t.Helper()
	for deadline := time.Now().Add(60 * time.Second); len(processes(text)) > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Errorf("%q still runs: %v", text, processes(text))
			return
		}
	}
}

// expectNothingLeft waits until nothing is left of the VM.
func (w *world) expectNothingLeft() {
	w.t.Helper()
	for _, text := range []string{
		"guest=shop/web", "weft-guest --socket", "vm run", "vm watch", "sandbox serve", "sandbox pause",
	} {
		w.awaitExit(text)
	}
	for _, name := range []string{"vms/shop,web", "records/shop,web.json"} {
		if _, err := os.Stat(filepath.Join(w.dir, name)); err == nil {
			w.t.Errorf("%s is left", name)
		}
	}
	// The address stays reserved for the VM.
	if b, err := os.ReadFile(filepath.Join(w.dir, "ipam/pods/10.50.0.2")); err == nil &&
		!strings.HasPrefix(string(b), "vm:shop/web") {
		w.t.Errorf("the address is allocated to %q", b)
	}
	if out := nettest.Run(w.t, nil, "ip", "-br", "link", "show", "type", "veth"); out != "" {
		w.t.Errorf("links are left: %s", out)
	}
}

// TestRun runs, shows and stops a VM, and checks that nothing is left.
func TestRun(t *testing.T) {
	w := newWorld(t)
	out, err := w.run("masquerade: {}")
	if err != nil || out != "VM shop/web is running in pod shop/virt-launcher-web\n" {
		t.Fatalf("%v: %s", err, out)
	}
	st := w.status()
	if st.Phase != launch.Running || len(st.Interfaces) != 1 || st.Interfaces[0].IP != "10.50.0.2" {
		t.Errorf("%+v", st)
	}
	shown := w.weft("vm", "status", "--dir", w.dir+"/vms", "shop/web")
	for _, want := range []string{
		"kind: VirtualMachineInstance\n", "phase: Running\n", "- infoSource: domain\n    ipAddress: 10.50.0.2\n",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("status lacks %q:\n%s", want, shown)
		}
	}
	if out, err := w.run("masquerade: {}"); err == nil ||
		!strings.HasPrefix(out, "weft: VM shop/web is Running already (process ") {
		t.Errorf("a second run: %v: %s", err, out)
	}
	if out := w.weft("vm", "stop", "--dir", w.dir+"/vms", "shop/web"); !strings.HasSuffix(out,
		"VM shop/web stopped\n") {
		t.Errorf("%s", out)
	}
	w.expectNothingLeft()
	if out, err := w.try("vm", "status", "--dir", w.dir+"/vms", "shop/web"); err == nil ||
		out != "weft: VM shop/web is not running\nhint: see `weft vm list`\n" {
		t.Errorf("%v: %s", err, out)
	}
}

// TestAddressKept: a VM that is run again keeps its address.
func TestAddressKept(t *testing.T) {
	w := newWorld(t)
	for range 2 {
		if out, err := w.run("masquerade: {}"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if ip := w.status().Interfaces[0].IP; ip != "10.50.0.2" {
			t.Errorf("the VM has %s", ip)
		}
		w.weft("vm", "stop", "--dir", w.dir+"/vms", "shop/web")
	}
}

// TestKilled: if one process of a VM is killed, the others exit, too.
func TestKilled(t *testing.T) {
	for _, victim := range []string{"vm run", "guest=shop/web", "sandbox pause"} {
		t.Run(victim, func(t *testing.T) {
			w := newWorld(t)
			if out, err := w.run("bridge: {}"); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			pids := processes(victim)
			if len(pids) != 1 {
				t.Fatalf("%q is %v", victim, pids)
			}
			if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			w.expectNothingLeft()
		})
	}
}

// TestRejected: errors of a detached VM are printed as in the foreground, and nothing is created.
func TestRejected(t *testing.T) {
	w := newWorld(t)
	out, err := w.run("slirp: {}")
	want := "weft: spec.domain.devices.interfaces[0].slirp: slirp is not supported; KubeVirt removed it in 1.3\nhint: use the masquerade binding\n"
	if err == nil || out != want {
		t.Errorf("%v: %s", err, out)
	}
	// macvtap requires a link that this pod does not have.
	out, err = w.run("binding: {name: macvtap}")
	if err == nil || !strings.HasPrefix(out, "weft: spec.domain.devices.interfaces[0]") {
		t.Errorf("%v: %s", err, out)
	}
	w.expectNothingLeft()
}
