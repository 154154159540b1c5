// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/lab"
	"github.com/weft-net/weft/internal/lab/connectivity"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/sandbox/process"
)

const examples = "../../examples"

func status(t testing.TB, dir string) lab.Status {
	t.Helper()
	return decode[lab.Status](t, must(t, "lab", "status", "--dir", dir, "-o", "json").stdout)
}

// degradedStatus returns the status of a lab that may have problems, and the exit code.
func degradedStatus(t testing.TB, dir string) (lab.Status, int) {
	t.Helper()
	a := weft(t, "lab", "status", "--dir", dir, "-o", "json")
	return decode[lab.Status](t, a.stdout), a.code
}

// reachOf probes each pair for so long that a lost SYN is sent again.
func reachOf(t testing.TB, dir string) (connectivity.Report, int) {
	t.Helper()
	return reachWithin(t, dir, 2500*time.Millisecond)
}

func reachWithin(t testing.TB, dir string, d time.Duration) (connectivity.Report, int) {
	t.Helper()
	a := weft(t, "lab", "reach", "--dir", dir, "-o", "json", "--timeout", d.String())
	return decode[connectivity.Report](t, a.stdout), a.code
}

// noRoute reports whether all pairs that do not reach have no route yet. That is known at once, and on a busy host an agent
// may need seconds for the block of a new node.
func noRoute(r connectivity.Report) bool {
	for _, f := range r.Failed {
		if !strings.Contains(f.Error, "network is unreachable") {
			return false
		}
	}
	return true
}

// allReach fails if a pair does not reach. On a busy host a SYN may be lost twice; it is sent again after 1, 3 and 7 s.
func allReach(t testing.TB, dir string, pairs int) {
	t.Helper()
	r, code := reachWithin(t, dir, 20*time.Second)
	for end := time.Now().Add(time.Minute); len(r.Failed) > 0 && noRoute(r) && time.Now().Before(end); {
		r, code = reachWithin(t, dir, 20*time.Second)
	}
	if code != 0 || r.Pairs != pairs || r.Reached != pairs || len(r.Failed) != 0 {
		t.Errorf("reach: exit %d, %d of %d reach, want %d; failed: %+v", code, r.Reached, r.Pairs, pairs, r.Failed)
	}
}

// settled returns the report in which all pairs are as expected: soon after pods have started, an agent may not have their
// addresses or routes yet, and a SYN may be lost.
func settled(t testing.TB, dir string) connectivity.Report {
	t.Helper()
	a := weft(t, "lab", "reach", "--dir", dir, "-o", "json", "--wait", "1m")
	r := decode[connectivity.Report](t, a.stdout)
	if a.code != 0 {
		t.Errorf("reach: exit %d, %d of %d reach, failed: %+v", a.code, r.Reached, r.Pairs, r.Failed)
	}
	return r
}

func TestThreeNodesWithTheExamples(t *testing.T) {
	dir := labDir(t)
	before := takeSnapshot(t, dir)
	up := must(t, "lab", "up", "--nodes", "3", "--from", examples, "--dir", dir)
	t.Logf("up printed:\n%s", up.stderr)
	if up.stdout != "" || !strings.Contains(up.stderr, "lab is up") {
		t.Errorf("up printed %q to stdout and %q to stderr", up.stdout, up.stderr)
	}
	st := status(t, dir)
	t.Run("status", func(t *testing.T) { checkStatus(t, st) })
	t.Run("reach", func(t *testing.T) { allReach(t, dir, 8*7*6) })
	t.Run("keys", func(t *testing.T) { checkKeys(t, dir) })
	t.Run("reach detects failures", func(t *testing.T) { checkReachDetectsFailure(t, dir, st) })
	t.Run("exec", func(t *testing.T) { checkExec(t, dir, st) })
	t.Run("graph", func(t *testing.T) { checkGraph(t, dir, st) })
	t.Run("second up", func(t *testing.T) {
		if a := weft(t, "lab", "up", "--dir", dir); a.code != 1 || !strings.Contains(a.stderr, "is running in "+dir+" already") {
			t.Errorf("exit %d, %s", a.code, a.stderr)
		}
	})
	must(t, "lab", "down", "--dir", dir)
	before.expectSame(t, dir)
	must(t, "lab", "down", "--dir", dir)
}

func checkStatus(t *testing.T, st lab.Status) {
	if st.Phase != "up" || len(st.Problems) != 0 || len(st.Nodes) != 3 || len(st.Pods) != 5 {
		t.Fatalf("got %+v, want 3 nodes and 5 pods", st)
	}
	cidr := map[string][]netip.Prefix{}
	own := map[string][]netip.Addr{}
	for _, n := range st.Nodes {
		if n.Agent != "running" || n.Sandbox != "running" || len(n.IPs) != 2 || len(n.Wires) != 2 {
			t.Errorf("node %+v", n)
		}
		cidr[n.Name], own[n.Name] = n.PodCIDRs, n.IPs
	}
	for _, p := range st.Pods {
		if !p.Ready || len(p.IPs) != 2 {
			t.Errorf("pod %s is not ready or has not two addresses: %+v", p.Name, p)
			continue
		}
		if p.HostNetwork && !slices.Equal(p.IPs, own[p.Node]) {
			t.Errorf("hostNetwork pod %s has %v, its node %v", p.Name, p.IPs, own[p.Node])
		}
		if !p.HostNetwork && (!cidr[p.Node][0].Contains(p.IPs[0]) || !cidr[p.Node][1].Contains(p.IPs[1])) {
			t.Errorf("pod %s has %v, its node's CIDR is %v", p.Name, p.IPs, cidr[p.Node])
		}
		if p.Name == "pinned" && p.Node != "node2" {
			t.Errorf("pod pinned is on %s", p.Node)
		}
	}
}

func checkKeys(t *testing.T, dir string) {
	doc := decode[map[string]any](t, must(t, "lab", "reach", "--dir", dir, "-o", "json", "--timeout", "20s").stdout)
	if d := cmp.Diff([]string{"failed", "pairs", "reached"}, slices.Sorted(maps.Keys(doc))); d != "" {
		t.Errorf("keys of reach: %s", d)
	}
	if list, ok := doc["failed"].([]any); !ok || len(list) != 0 {
		t.Errorf("failed is %v, want an empty list", doc["failed"])
	}
	doc = decode[map[string]any](t, must(t, "lab", "status", "--dir", dir, "-o", "json").stdout)
	one := doc["pods"].([]any)[0].(map[string]any)
	for _, key := range []string{"name", "namespace", "node", "ips", "annotations"} {
		if one[key] == nil {
			t.Errorf("a pod of status has no %q: %v", key, one)
		}
	}
}

// checkReachDetectsFailure removes a route and checks that lab reach reports it.
func checkReachDetectsFailure(t *testing.T, dir string, st lab.Status) {
	web := st.Pods[slices.IndexFunc(st.Pods, func(p lab.PodStatus) bool { return p.Name == "web" })]
	exec := func(argv ...string) {
		must(t, append([]string{"lab", "exec", web.Node, "--dir", dir, "--"}, argv...)...)
	}
	exec(
		"nft",
		"add table inet teeth; add chain inet teeth f { type filter hook forward priority 0; }; add rule inet teeth f ip daddr "+
			web.IPs[0].String()+" icmp type echo-request drop")
	r, code := reachOf(t, dir)
	waits := command(t, "lab", "reach", "--dir", dir, "--wait", "1m")
	if err := waits.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = waits.Process.Kill() }()
	time.Sleep(3 * time.Second) // the first test has found the failure, on a host that is not busy
	exec("nft", "delete", "table", "inet", "teeth")
	if err := waits.Wait(); err != nil {
		t.Errorf("reach with --wait does not see that the failure is over: %v", err)
	}
	if code != 1 || len(r.Failed) == 0 || r.Reached+len(r.Failed) != r.Pairs {
		t.Fatalf("exit %d, %+v", code, r)
	}
	for _, f := range r.Failed {
		if f.To != "default/web" || f.Proto != connectivity.ICMP4 || !f.Expected || f.Error == "" || f.From == web.Node {
			t.Errorf("failed holds %+v", f)
		}
	}
	allReach(t, dir, r.Pairs)
}

func checkExec(t *testing.T, dir string, st lab.Status) {
	if a := must(t, "lab", "exec", "--dir", dir, "node1", "--", "ip", "-br", "addr", "show",
		"eth1"); !strings.Contains(a.stdout, "172.18.1.1/24") {
		t.Errorf("eth1 of node1: %s", a.stdout)
	}
	a := must(t, "lab", "exec", "--dir", dir, "backend/db", "--", "sh", "-c",
		"hostname; ip -br addr show eth0; ls /proc | grep -c '^[0-9]'")
	db := st.Pods[slices.IndexFunc(st.Pods, func(p lab.PodStatus) bool { return p.Name == "db" })]
	if !strings.HasPrefix(a.stdout, "db\n") || !strings.Contains(a.stdout, db.IPs[0].String()) {
		t.Errorf("in pod db: %s", a.stdout)
	}
	testWeftOnNode(t, dir)
	if a := weft(t, "lab", "exec", "--dir", dir, "node1", "--", "sh", "-c", "exit 7"); a.code != 7 || a.stderr != "" {
		t.Errorf("exit 7 became %d, %s", a.code, a.stderr)
	}
	if a := weft(t, "lab", "exec", "--dir", dir, "nobody", "--", "true"); a.code != 1 ||
		!strings.Contains(a.stderr, `node or pod "nobody" not found`) {
		t.Errorf("nobody: %d, %s", a.code, a.stderr)
	}
}

func checkGraph(t *testing.T, dir string, st lab.Status) {
	for _, format := range []string{"dot", "svg"} {
		text := must(t, "lab", "graph", "--dir", dir, "-o", format).stdout
		for _, want := range []string{"wire1", "node3", "backend/db", st.Pods[0].IPs[0].String()} {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not show %s", format, want)
			}
		}
	}
}

// Two labs with the same name, nodes and addresses, one of which is removed while the other keeps running.
func TestTwoLabs(t *testing.T) {
	a, b := labDir(t), labDir(t)
	before := takeSnapshot(t, b)
	done := make(chan result, 2)
	for _, dir := range []string{a, b} {
		go func() { done <- weft(t, "lab", "up", "--nodes", "2", "--from", examples2(t), "--dir", dir) }()
	}
	for range 2 {
		if up := <-done; up.code != 0 {
			t.Fatalf("up: %s", up.stderr)
		}
	}
	allReach(t, a, 4*3*6)
	must(t, "lab", "down", "--dir", a)
	allReach(t, b, 4*3*6)
	must(t, "lab", "down", "--dir", b)
	before.expectSame(t, b)
}

// All pairs are connected through a tunnel, with packets of the maximum size.
func TestVxlan(t *testing.T) {
	nettest.Need(t, "vxlan")
	tunnel(t, "vxlan", "dev flannel.1", 1430)
}

// The agents forward packets in user space.
func TestUDP(t *testing.T) { tunnel(t, "udp", "dev flannel0", 1452) }

// WireGuard accepts responses of a node to pods from any of its addresses.
func TestWireguard(t *testing.T) { tunnel(t, "wireguard", "dev flannel-wg", 1420) }

// waitForRoute waits until node1 has a route with this text.
func waitForRoute(t *testing.T, dir, route string) {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		out := must(t, "lab", "exec", "--dir", dir, "node1", "--", "ip", "route").stdout
		if strings.Contains(out, route) {
			break
		}
		if time.Since(begin) > time.Minute {
			t.Fatalf("routes of node1: %s", out)
		}
	}
}

func tunnel(t *testing.T, encapsulation, route string, mtu int) {
	t.Helper()
	dir := labDir(t)
	before := takeSnapshot(t, dir)
	must(t, "lab", "up", "--nodes", "2", "--from", examples2(t), "--dir", dir, "--encapsulation", encapsulation)
	waitForRoute(t, dir, route)
	allReach(t, dir, 4*3*6)
	verifyExplained(t, dir, "one", "two")
	for _, p := range status(t, dir).Pods {
		if p.Node == "node1" {
			continue
		}
		for _, ip := range p.IPs {
			head := 28
			if ip.Is6() {
				head = 48
			}
			must(t, "lab", "exec", "--dir", dir, "default/one", "--", "ping", "-c1", "-W20", "-M", "do", "-s",
				strconv.Itoa(mtu-head), ip.String())
		}
	}
	must(t, "lab", "down", "--dir", dir)
	before.expectSame(t, dir)
}

// A hostPort is reachable from any node with the reference portmap.
func TestHostPort(t *testing.T) {
	peer := os.Getenv("WEFT_PEER_BIN_DIR")
	if _, err := os.Stat(filepath.Join(peer, "portmap")); peer == "" || err != nil {
		nettest.SkipMissing(t, "WEFT_PEER_BIN_DIR names no directory with the reference portmap")
	}
	dir := labDir(t)
	must(t, "lab", "up", "--nodes", "3", "--from", examples, "--dir", dir, "--cni-bin-dir", peer)
	st := status(t, dir)
	pod := st.Pods[slices.IndexFunc(st.Pods, func(p lab.PodStatus) bool { return p.Name == "hostport" })]
	at := slices.IndexFunc(st.Nodes, func(n lab.NodeStatus) bool { return n.Name == pod.Node })
	inside, err := netns.Open(pod.Netns)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = inside.Close() }()
	outside, err := netns.Open(st.Nodes[(at+1)%3].Netns)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = outside.Close() }()
	err = inside.Do(func() error {
		l, err := net.Listen("tcp4", ":80")
		if err == nil {
			t.Cleanup(func() { _ = l.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	err = outside.Do(func() error {
		c, err := net.DialTimeout("tcp4", netip.AddrPortFrom(st.Nodes[at].IPs[0], 8080).String(), time.Minute)
		if err == nil {
			_ = c.Close()
		}
		return err
	})
	if err != nil {
		t.Errorf("port 8080 of %s: %v", pod.Node, err)
	}
}

// Processes of a lab keep their files in the state directory: the default directories stay empty.
func TestNothingOutsideStateDir(t *testing.T) {
	dir := labDir(t)
	usual := []string{"/run", "/var/lib", "/var/log"}
	for _, at := range usual {
		nettest.Run(t, nil, "mount", "-t", "tmpfs", "weft-test", at)
		t.Cleanup(func() { nettest.Run(t, nil, "umount", "-l", at) })
	}
	must(t, "lab", "up", "--from", examples, "--dir", dir)
	settled(t, dir)
	for _, at := range usual {
		// mount(8) creates /run/mount.
		if left := nettest.Run(t, nil, "find", at, "-mindepth", "1", "-not", "-path", "/run/mount*"); left != "" {
			t.Errorf("files in %s:\n%s", at, left)
		}
	}
	must(t, "lab", "down", "--dir", dir)
}

// More neighbors than the kernel's default limit: 24 nodes on two links have 1,104 per family, the limit of all
// namespaces together is 1,024. Their inotify instances are what lab up counts before it starts: by default the kernel
// allows 128 for all programs together.
func TestManyNodes(t *testing.T) {
	dir := labDir(t)
	must(t, "lab", "up", "--nodes", "24", "--dir", dir)
	allReach(t, dir, 24*23*6)
	if n := inotifyInstances(t, dir); n == 0 || n > 24*4 {
		t.Errorf("%d inotify instances, want 1 to %d", n, 24*4)
	}
}

// inotifyInstances counts those of the processes whose command line has the text.
func inotifyInstances(t testing.TB, text string) (n int) {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, process := range processes {
		command, err := os.ReadFile(filepath.Join(process, "cmdline"))
		if err != nil || !strings.Contains(string(command), text) {
			continue // other processes may end while this looks
		}
		files, _ := filepath.Glob(filepath.Join(process, "fd", "*"))
		for _, file := range files {
			if to, err := os.Readlink(file); err == nil && to == "anon_inode:inotify" {
				n++
			}
		}
	}
	return n
}

// examples2 writes manifests of two pods for two nodes.
func examples2(t testing.TB) string {
	dir := t.TempDir()
	for _, name := range []string{"one", "two"} {
		text := "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name +
			"}\nspec: {containers: [{name: main, command: [sleep, infinity]}]}\n"
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A failed up leaves nothing.
func TestFailedUpLeavesNothing(t *testing.T) {
	dir := labDir(t)
	before := takeSnapshot(t, dir)
	bad := t.TempDir()
	if err := os.WriteFile(filepath.Join(bad, "pod.yaml"),
		[]byte("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: []}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"--from", bad},
		{"--from", "/nowhere"},
		{"--nodes", "0"},
		{"--cluster-cidr", "10.42.0.0/30"},
		{"--cluster-cidr", "nonsense"},
		{"--cni-bin-dir", "/nowhere"},
	} {
		a := weft(t, append([]string{"lab", "up", "--dir", dir}, args...)...)
		if a.code == 0 || !strings.Contains(a.stderr, args[1]) && args[0] != "--from" {
			t.Errorf("%v: exit %d, %s", args, a.code, a.stderr)
		}
		before.expectSame(t, dir)
	}
}

func TestInterruptedUpLeavesNothing(t *testing.T) {
	dir := labDir(t)
	before := takeSnapshot(t, dir)
	cmd := command(t, "lab", "up", "--dir", dir, "--from", examples2(t))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	within(t, 20*waitUnit, "a first node", func() bool { return len(processesOf(dir)) > 1 })
	_ = cmd.Process.Signal(syscall.SIGINT)
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("exit %d, want 1", code)
	}
	before.expectSame(t, dir)
}

// The status reports an agent or a runtime that is killed, and down works without it.
func TestDownWithoutProcesses(t *testing.T) {
	dir := labDir(t)
	before := takeSnapshot(t, dir)
	must(t, "lab", "up", "--nodes", "2", "--from", examples2(t), "--dir", dir)
	for _, role := range []string{"agent", "sandbox"} {
		var p process.ID
		if err := process.ReadJSON(filepath.Join(dir, "nodes", "node1", role+".pid"), &p); err != nil {
			t.Fatal(err)
		}
		if err := p.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	within(t, 10*waitUnit, "the dead to show", func() bool {
		st, code := degradedStatus(t, dir)
		return st.Nodes[0].Agent == "dead" && st.Nodes[0].Sandbox == "dead" && code == 1
	})
	// The network of a node outlives its agent; the state of the runtime does not.
	if r, code := reachOf(t, dir); code != 1 || r.Reached == 0 {
		t.Errorf("reach: exit %d, %+v", code, r)
	}
	must(t, "lab", "down", "--dir", dir)
	before.expectSame(t, dir)
}

// testWeftOnNode: on a node weft finds that node's agent and the lab without a flag.
func testWeftOnNode(t *testing.T, dir string) {
	t.Helper()
	program := filepath.Join(nettest.Programs(t), "weft")
	for command, want := range map[string]string{
		"mesh ping": "node1", "mesh": "node1", "doctor": "agent", "policy why backend/db 10.42.0.9": "allow",
		"explain backend/db node1": "nothing is in the way", "status": "node2",
	} {
		r := weft(t, append([]string{"lab", "exec", "--dir", dir, "node2", "--", program}, strings.Fields(command)...)...)
		if !strings.Contains(r.stdout, want) || strings.Contains(r.stderr, "is not running") {
			t.Errorf("weft %s on node2: exit %d, %s%s", command, r.code, r.stdout, r.stderr)
		}
	}
}
