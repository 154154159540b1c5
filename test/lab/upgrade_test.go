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
	"github.com/weft-net/weft/internal/lab/reach"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/sandbox/process"
	"github.com/weft-net/weft/internal/vm/gap"
)

// earlier is the program weft of an earlier commit (test/upgrade/build.sh).
func earlier(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("WEFT_EARLIER_DIR")
	if dir == "" {
		nettest.Without(t,
			"there are no programs of an earlier commit: build them with test/upgrade/build.sh, and set WEFT_EARLIER_DIR")
	}
	return filepath.Join(dir, "weft")
}

// TestUpgradeOfAgents: agents of an earlier commit leave running pods and machines behind, and today's go on with them.
// No connection ends, everything reaches everything, no address is given twice, and what goes afterwards is gone.
func TestUpgradeOfAgents(t *testing.T) {
	old := earlier(t)
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		nettest.Without(t, "there is no qemu-system-x86_64")
	}
	nettest.Need(t, "tap")
	if a := weft(t, "vm", "image"); a.code != 0 {
		nettest.Without(t, a.stderr)
	}
	dir := labDir(t)
	before := look(t, dir)
	up := exec.Command(old, "lab", "up", "--nodes", "2", "--from", examples2(t)+","+examples+"/machines", "--addresses",
		"pools", "--dir", dir)
	if out, err := up.CombinedOutput(); err != nil {
		t.Fatalf("up of the earlier commit: %v\n%s", err, out)
	}
	was := status(t, dir)
	// It also has the guests begin to answer.
	if out, err := exec.Command(old, "lab", "reach", "--dir", dir, "--timeout", "20s").CombinedOutput(); err != nil {
		t.Fatalf("reach of the earlier commit: %v\n%s", err, out)
	}
	if len(was.Pods) != 4 || len(was.Machines) != 2 {
		t.Fatalf("the earlier commit's lab has %d pods and %d machines, want 4 and 2: %+v", len(was.Pods),
			len(was.Machines), was)
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	calls := connections(ctx, t, was)
	begun := time.Now()
	replaceAgent(t, dir, "node1", syscall.SIGKILL)
	calls.goOn(ctx, t)
	replaceAgent(t, dir, "node2", syscall.SIGTERM)
	calls.goOn(ctx, t)

	sameAddresses(t, was, status(t, dir))
	a := weft(t, "lab", "reach", "--dir", dir, "-o", "json", "--timeout", "20s") // guests are emulated
	run := decode[reach.Report](t, a.stdout)
	if pairs := 6 * 5 * 6; a.code != 0 || run.Pairs != pairs || run.Reached != pairs {
		t.Errorf("reach: exit %d, %d of %d reach, want %d; failed: %+v", a.code, run.Reached, run.Pairs, pairs, run.Failed)
	}
	for _, node := range was.Nodes {
		checked(t, dir, node.Name)
	}
	newPods(t, dir, was)
	calls.goOn(ctx, t)
	calls.report(t, begun)
	cancel()
	must(t, "lab", "down", "--dir", dir)
	before.same(t, dir)
}

// checked: CHECK finds every attachment of a node as it was made, and the machines are in their pods.
func checked(t *testing.T, dir, node string) {
	t.Helper()
	a := weft(t, "lab", "exec", node, "--dir", dir, "--", filepath.Join(nettest.Programs(t), "weft"), "doctor",
		"--socket", filepath.Join(dir, "nodes", node, "agent", "agent.sock"), "-o", "json")
	looked := 0
	for _, f := range decode[struct {
		Findings []struct{ Check, Level, Says string }
	}](t, a.stdout).Findings {
		if f.Check == "attachments" || f.Check == "machines" {
			looked++
			if f.Level != "ok" {
				t.Errorf("doctor on %s: %s: %s: %s", node, f.Check, f.Level, f.Says)
			}
		}
	}
	if looked != 2 {
		t.Errorf("doctor on %s did not look at attachments and machines: %s", node, a.stdout)
	}
}

// replaceAgent ends a node's agent, and begins today's in its place: with its arguments, environment and namespaces.
func replaceAgent(t *testing.T, dir, node string, how syscall.Signal) {
	t.Helper()
	file := filepath.Join(dir, "nodes", node, "agent.pid")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	id := decode[process.ID](t, string(b))
	proc := fmt.Sprintf("/proc/%d/", id.PID)
	args, environ := zeroed(t, proc+"cmdline"), zeroed(t, proc+"environ")
	ns, err := netns.Open(proc + "ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ns.Close() }()
	if err := id.Signal(how); err != nil {
		t.Fatal(err)
	}
	patience := time.AfterFunc(5*time.Second, func() { _ = id.Signal(syscall.SIGKILL) }) // as kubelet's ends, later
	defer patience.Stop()
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
	t.Cleanup(func() { // lab down has ended it, unless the test failed before
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			said, _ := os.ReadFile(log.Name())
			t.Logf("agents of %s:\n%s", node, said)
		}
	})
	now, ok := process.Read(cmd.Process.Pid)
	if !ok {
		t.Fatalf("the agent of today ended at once")
	}
	if err := process.WriteJSON(file, now); err != nil {
		t.Fatal(err)
	}
	eventually(t, "today's agent of "+node, func() bool {
		_, err := os.Stat(ready)
		return err == nil
	})
}

// zeroed reads a list that ends each string with a zero byte.
func zeroed(t *testing.T, file string) []string {
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
			t.Fatalf("waited for %s in vain", what)
		}
	}
}

// flows are connections that go on: one end says a numbered line each 10 ms.
type flows map[string]*gap.Peer

// connections has pod one call pod two and both guests, at each of their addresses.
func connections(ctx context.Context, t *testing.T, st lab.Status) flows {
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
	talk(ctx, t, spaces["two"], podPort)
	out := flows{}
	for name, all := range addrs {
		port := uint16(guestPort)
		switch name {
		case "one":
			continue
		case "two":
			port = podPort
		}
		for _, addr := range all {
			call := &gap.Peer{Now: time.Now}
			if err := call.Hear(ctx, spaces["one"], netip.AddrPortFrom(addr, port), "weft talk 10ms"); err != nil {
				t.Fatalf("%s at %s: %v", name, addr, err)
			}
			out[name+" at "+addr.String()] = call
		}
	}
	out.goOn(ctx, t)
	return out
}

// talk says numbered lines to everybody who calls, as the guests do.
func talk(ctx context.Context, t *testing.T, ns *netns.NS, port int) {
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

// goOn waits until something new has come on each connection; one that ended, or lacks a line, is an error.
func (f flows) goOn(ctx context.Context, t *testing.T) {
	t.Helper()
	since := time.Now()
	for name, call := range f {
		if err := call.Await(ctx, since); err != nil {
			t.Errorf("connection to %s: %v", name, err)
		}
	}
}

func (f flows) report(t *testing.T, since time.Time) {
	t.Helper()
	for name, call := range f {
		t.Logf("connection to %s: the longest pause %s", name, call.Around(since).Stream.Round(time.Millisecond))
	}
}

// sameAddresses: pods and machines have what they had.
func sameAddresses(t *testing.T, was, is lab.Status) {
	t.Helper()
	had := map[string]string{}
	for _, p := range was.Pods {
		had[p.Namespace+"/"+p.Name] = fmt.Sprint(p.Node, p.IPs)
	}
	for _, p := range is.Pods {
		if got := fmt.Sprint(p.Node, p.IPs); got != had[p.Namespace+"/"+p.Name] {
			t.Errorf("pod %s has %s, had %s", p.Name, got, had[p.Namespace+"/"+p.Name])
		}
	}
	if len(is.Problems) != 0 || len(is.Pods) != len(was.Pods) || len(is.Machines) != len(was.Machines) {
		t.Errorf("after the upgrade: problems %q, %d pods, %d machines", is.Problems, len(is.Pods), len(is.Machines))
	}
}

// newPods: pods that come after the upgrade have addresses that nobody has, and reach those from before.
func newPods(t *testing.T, dir string, was lab.Status) {
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
		st, _ = meanwhile(t, dir)
		ready := 0
		for _, p := range st.Pods {
			if p.Ready && len(p.IPs) == 2 {
				ready++
			}
		}
		return ready == len(was.Pods)+more
	})
	owner := map[netip.Addr]string{}
	for _, p := range st.Pods {
		for _, a := range p.IPs {
			if o := owner[a]; o != "" {
				t.Errorf("%s is that of %s and of %s", a, o, p.Name)
			}
			owner[a] = p.Name
		}
	}
}
