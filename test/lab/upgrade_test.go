// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/lab"
	"github.com/weft-net/weft/internal/lab/connectivity"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/sandbox/process"
	"github.com/weft-net/weft/internal/vm/downtime"
)

// earlier returns the directories with the programs of earlier commits (test/upgrade/build.sh).
func earlier(t *testing.T) []string {
	t.Helper()
	dirs := os.Getenv("WEFT_EARLIER_DIR")
	if dirs == "" {
		nettest.SkipMissing(t,
			"there are no programs of an earlier commit: build them with test/upgrade/build.sh, and set WEFT_EARLIER_DIR")
	}
	return filepath.SplitList(dirs)
}

// TestUpgradeOfAgents: agents of an earlier commit leave running pods, VMs and their state on disk behind, and today's
// continue with them. No connection ends, all pairs are connected, no address is allocated twice, and DEL leaves
// nothing.
func TestUpgradeOfAgents(t *testing.T) {
	for _, dir := range earlier(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) { upgradeFrom(t, filepath.Join(dir, "weft")) })
	}
}

// upgradeFrom replaces agents of the program old by today's.
func upgradeFrom(t *testing.T, old string) {
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		nettest.SkipMissing(t, "qemu-system-x86_64 is missing")
	}
	nettest.Need(t, "tap")
	if a := weft(t, "vm", "image"); a.code != 0 {
		nettest.SkipMissing(t, a.stderr)
	}
	dir := labDir(t)
	hostBefore := takeSnapshot(t, dir)
	up := exec.Command(old, "lab", "up", "--nodes", "2", "--from", examples2(t)+","+examples+"/machines", "--addresses",
		"pools", "--dir", dir)
	if out, err := up.CombinedOutput(); err != nil {
		t.Fatalf("up of the earlier commit: %v\n%s", err, out)
	}
	before := status(t, dir)
	// This also waits until the guests respond.
	if out, err := exec.Command(old, "lab", "reach", "--dir", dir, "--timeout", "20s").CombinedOutput(); err != nil {
		t.Fatalf("reach of the earlier commit: %v\n%s", err, out)
	}
	if len(before.Pods) != 4 || len(before.VMs) != 2 {
		t.Fatalf("the earlier commit's lab has %d pods and %d VMs, want 4 and 2: %+v", len(before.Pods),
			len(before.VMs), before)
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	calls := openConnections(ctx, t, before)
	begun := time.Now()
	replaceAgent(t, dir, "node1", syscall.SIGKILL)
	calls.expectProgress(ctx, t)
	replaceAgent(t, dir, "node2", syscall.SIGTERM)
	calls.expectProgress(ctx, t)

	expectSameAddresses(t, before, status(t, dir))
	a := weft(t, "lab", "reach", "--dir", dir, "-o", "json", "--timeout", "20s") // guests are emulated
	run := decode[connectivity.Report](t, a.stdout)
	if pairs := 6 * 5 * 6; a.code != 0 || run.Pairs != pairs || run.Reached != pairs {
		t.Errorf("reach: exit %d, %d of %d reach, want %d; failed: %+v", a.code, run.Reached, run.Pairs, pairs, run.Failed)
	}
	for _, node := range before.Nodes {
		checkNode(t, dir, node.Name)
	}
	testNewPods(t, dir, before)
	calls.expectProgress(ctx, t)
	calls.report(t, begun)
	cancel()
	must(t, "lab", "down", "--dir", dir)
	hostBefore.expectSame(t, dir)
}

// checkNode checks that CHECK succeeds for every attachment of a node, and that VMs are in their pods.
func checkNode(t *testing.T, dir, node string) {
	t.Helper()
	a := weft(t, "lab", "exec", node, "--dir", dir, "--", filepath.Join(nettest.Programs(t), "weft"), "doctor",
		"--socket", filepath.Join(dir, "nodes", node, "agent", "agent.sock"), "-o", "json")
	checks := 0
	for _, f := range decode[struct {
		Findings []struct{ Check, Level, Says string }
	}](t, a.stdout).Findings {
		if f.Check == "attachments" || f.Check == "machines" {
			checks++
			if f.Level != "ok" {
				t.Errorf("doctor on %s: %s: %s: %s", node, f.Check, f.Level, f.Says)
			}
		}
	}
	if checks != 2 {
		t.Errorf("doctor on %s did not check attachments and VMs: %s", node, a.stdout)
	}
}

// replaceAgent stops a node's agent and starts today's with the same arguments, environment and namespaces.
func replaceAgent(t *testing.T, dir, node string, signal syscall.Signal) {
	t.Helper()
	file := filepath.Join(dir, "nodes", node, "agent.pid")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	id := decode[process.ID](t, string(b))
	proc := fmt.Sprintf("/proc/%d/", id.PID)
	args, environ := nulSeparated(t, proc+"cmdline"), nulSeparated(t, proc+"environ")
	ns, err := netns.Open(proc + "ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ns.Close() }()
	if err := id.Signal(signal); err != nil {
		t.Fatal(err)
	}
	// Like the kubelet's grace period, but shorter.
	kill := time.AfterFunc(5*time.Second, func() { _ = id.Signal(syscall.SIGKILL) })
	defer kill.Stop()
	eventually(t, "the end of the agent of "+node, func() bool { return !id.Alive() })

	log, err := os.OpenFile(filepath.Join(dir, "nodes", node, "agent.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	ready := filepath.Join(t.TempDir(), "ready")
	cmd := command(t, append(args[1:], "--ready-file", ready)...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = "/", environ, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := ns.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // lab down has stopped it unless the test failed before
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			said, _ := os.ReadFile(log.Name())
			t.Logf("agents of %s:\n%s", node, said)
		}
	})
	now, ok := process.Read(cmd.Process.Pid)
	if !ok {
		t.Fatalf("today's agent exited immediately")
	}
	if err := process.WriteJSON(file, now); err != nil {
		t.Fatal(err)
	}
	eventually(t, "today's agent of "+node, func() bool {
		_, err := os.Stat(ready)
		return err == nil
	})
}

// nulSeparated reads a list of NUL-terminated strings.
func nulSeparated(t *testing.T, file string) []string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not after a minute", what)
		}
	}
}

// connections are connections on which one end sends a numbered line every 10 ms.
type connections map[string]*downtime.Peer

// openConnections connects pod one to pod two and both guests, at each of their addresses.
func openConnections(ctx context.Context, t *testing.T, st lab.Status) connections {
	t.Helper()
	spaces := map[string]*netns.NS{}
	addrs := map[string][]netip.Addr{}
	for _, p := range st.Pods {
		ns, err := netns.Open(p.Netns)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ns.Close() })
		spaces[p.Name], addrs[p.Name] = ns, p.IPs
	}
	const guestPort, podPort = 7007, 7008
	serveLines(ctx, t, spaces["two"], podPort)
	out := connections{}
	for name, all := range addrs {
		port := uint16(guestPort)
		switch name {
		case "one":
			continue
		case "two":
			port = podPort
		}
		for _, addr := range all {
			call := &downtime.Peer{Now: time.Now}
			if err := call.ReadStream(ctx, spaces["one"], netip.AddrPortFrom(addr, port), "weft talk 10ms"); err != nil {
				t.Fatalf("%s at %s: %v", name, addr, err)
			}
			out[name+" at "+addr.String()] = call
		}
	}
	out.expectProgress(ctx, t)
	return out
}

// serveLines sends numbered lines on each connection, as the guests do.
func serveLines(ctx context.Context, t *testing.T, ns *netns.NS, port int) {
	t.Helper()
	var l net.Listener
	if err := ns.Do(func() (err error) {
		l, err = new(net.ListenConfig).Listen(ctx, "tcp", fmt.Sprintf("[::]:%d", port))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	context.AfterFunc(ctx, func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				for n := 0; ctx.Err() == nil; n++ {
					if _, err := fmt.Fprintf(conn, "%d\n", n); err != nil {
						return
					}
					time.Sleep(10 * time.Millisecond)
				}
			}()
		}
	}()
}

// expectProgress waits for new lines on each connection; a closed connection or a missing line is an error.
func (f connections) expectProgress(ctx context.Context, t *testing.T) {
	t.Helper()
	since := time.Now()
	for name, call := range f {
		if err := call.Await(ctx, since); err != nil {
			t.Errorf("connection to %s: %v", name, err)
		}
	}
}

func (f connections) report(t *testing.T, since time.Time) {
	t.Helper()
	for name, call := range f {
		t.Logf("connection to %s: longest pause %s", name, call.Measure(since).Stream.Round(time.Millisecond))
	}
}

// expectSameAddresses checks that pods and VMs have the same addresses as before.
func expectSameAddresses(t *testing.T, before, after lab.Status) {
	t.Helper()
	had := map[string]string{}
	for _, p := range before.Pods {
		had[p.Namespace+"/"+p.Name] = fmt.Sprint(p.Node, p.IPs)
	}
	for _, p := range after.Pods {
		if got := fmt.Sprint(p.Node, p.IPs); got != had[p.Namespace+"/"+p.Name] {
			t.Errorf("pod %s has %s, had %s", p.Name, got, had[p.Namespace+"/"+p.Name])
		}
	}
	if len(after.Problems) != 0 || len(after.Pods) != len(before.Pods) || len(after.VMs) != len(before.VMs) {
		t.Errorf("after the upgrade: problems %q, %d pods, %d VMs", after.Problems, len(after.Pods), len(after.VMs))
	}
}

// testNewPods checks that new pods have unique addresses and reach earlier pods.
func testNewPods(t *testing.T, dir string, before lab.Status) {
	t.Helper()
	const more = 4
	for i := range more {
		text := fmt.Sprintf(
			"apiVersion: v1\nkind: Pod\nmetadata: {name: new%d}\nspec: {nodeName: node%d, containers: [{name: main, command: [sleep, infinity]}]}\n", i, i%2+1,
		)
		if err := os.WriteFile(filepath.Join(dir, "store", fmt.Sprintf("new%d.yaml", i)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var st lab.Status
	eventually(t, "the new pods", func() bool {
		st, _ = degradedStatus(t, dir)
		ready := 0
		for _, p := range st.Pods {
			if p.Ready && len(p.IPs) == 2 {
				ready++
			}
		}
		return ready == len(before.Pods)+more
	})
	owner := map[netip.Addr]string{}
	for _, p := range st.Pods {
		for _, a := range p.IPs {
			if o := owner[a]; o != "" {
				t.Errorf("%s is allocated to %s and to %s", a, o, p.Name)
			}
			owner[a] = p.Name
		}
	}
}
