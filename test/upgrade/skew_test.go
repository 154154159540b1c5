// SPDX-License-Identifier: Apache-2.0

// Package upgrade_test runs two versions of weft in one cluster, in every mix of a rolling upgrade and of a roll back:
// the version before (build.sh) and today's.
package upgrade_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/kernel/counters"
	"github.com/weft-net/weft/internal/lab"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/sandbox/process"
)

func TestMain(m *testing.M) { os.Exit(nettest.MainWithPrograms(m)) }

// roundsVar is how often the steps are repeated (make test-upgrade).
const roundsVar = "WEFT_UPGRADE_ROUNDS"

// step is one step of an upgrade: a program of a node is replaced.
type step struct {
	node    string
	program string // weft-agent or weft-cni
	to      string // the version
	signal  syscall.Signal
}

const (
	agent = "weft-agent"
	shim  = "weft-cni"
	// The versions: the one before, and today's.
	before, today = "N-1", "N"
)

// String returns the step in the words of the report.
func (s step) String() string {
	text := fmt.Sprintf("%s of %s to %s", s.program, s.node, s.to)
	switch s.signal {
	case syscall.SIGTERM:
		text += ", by SIGTERM"
	case syscall.SIGKILL:
		text += ", by SIGKILL"
	}
	return text
}

// steps has each mix of two nodes' agents, and of an agent and the shim of its node: an upgrade, a roll back after the
// new version has written the state, and the first step of the upgrade again. On a node either program is the first.
func steps() []step {
	return []step{
		{"node1", shim, today, 0},
		{"node1", agent, today, syscall.SIGTERM},
		{"node2", agent, today, syscall.SIGKILL},
		{"node2", shim, today, 0},
		{"node2", agent, before, syscall.SIGTERM},
		{"node2", shim, before, 0},
		{"node1", shim, before, 0},
		{"node1", agent, before, syscall.SIGKILL},
		{"node1", agent, today, syscall.SIGKILL},
		{"node1", agent, before, syscall.SIGTERM},
	}
}

// stepsWithin are the steps with those in which an agent of today's version replaces one: where an agent of the version
// before forwards packets itself, only these lose none.
func stepsWithin() (out []step) {
	for _, s := range steps() {
		out = append(out, s)
		if s.program == agent && s.to == today {
			out = append(out, step{s.node, agent, today, syscall.SIGTERM}, step{s.node, agent, today, syscall.SIGKILL})
		}
	}
	return out
}

// TestVersionSkew: through each step no datagram is lost and no connection is reset, pods are attached and detached on
// both nodes, and a pod that was attached before the step passes CHECK and is detached after it.
func TestVersionSkew(t *testing.T) {
	old := previous(t)
	rounds, err := strconv.Atoi(os.Getenv(roundsVar))
	if err != nil {
		rounds = 1
	}
	for _, c := range []struct {
		name, backend, addresses, feature string
		inAgent                           bool
	}{
		{"vxlan", "vxlan", "pools", "vxlan", false},
		{"host-gw", "host-gw", "podCIDRs", "veth", false},
		{"wireguard", "wireguard", "pools", "wireguard", false},
		// Where the kernel has no WireGuard, packets pass through a process of the agent's, before v0.2 through the agent
		// itself: what is lost in a step from or to that is only printed.
		{"wireguard in user space", "wireguard", "pools", "tap", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			nettest.Need(t, c.feature)
			if _, err := nettest.Try(nettest.NS(t, "probe"), "ip", "link", "add", "probe", "type", "wireguard"); c.inAgent && err == nil {
				t.Skip("the agent uses the kernel's WireGuard")
			}
			w := newSkewed(t, old, c.backend, c.addresses)
			w.inAgent = c.inAgent
			for range rounds {
				all := steps()
				if c.inAgent {
					all = stepsWithin()
				}
				for _, s := range all {
					w.take(s)
				}
			}
			w.finish()
		})
	}
}

// previous returns the directory with the programs of the version before: build.sh builds it last.
func previous(t *testing.T) string {
	t.Helper()
	dirs := filepath.SplitList(os.Getenv("WEFT_EARLIER_DIR"))
	if len(dirs) == 0 {
		nettest.SkipMissing(t,
			"there are no programs of the version before: build them with test/upgrade/build.sh, and set WEFT_EARLIER_DIR")
	}
	return dirs[len(dirs)-1]
}

// skewed is a lab of two nodes with programs of two versions.
type skewed struct {
	t        *testing.T
	backend  string
	inAgent  bool              // packets pass through the process of an agent of the version before
	versions map[string]string // of the nodes' agents
	dir      lab.Dir
	programs map[string]string // directories by version
	spaces   map[string]*netns.NS

	datagrams, streams []*flow
	control            *flow // between the nodes themselves
	runtimes           map[string]*runtime
	links              map[string]string // of the nodes, before the runtimes have started
	lossy              map[string]counters.Values
	taken              []*taken
}

// taken is a step that was taken, with what was sent before it.
type taken struct {
	step
	from          string // the version of the node's agent before
	sent          map[*flow]uint64
	retransmitted uint64
	resets        int
	pods, retries uint64
}

func newSkewed(t *testing.T, old, backend, mode string) *skewed {
	t.Helper()
	parent, err := os.MkdirTemp("", "wu")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(parent) })
	manifests := filepath.Join(parent, "manifests")
	pods := filepath.Join(parent, "pods")
	for _, d := range []string{manifests, pods} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, node := range []string{"node1", "node2"} {
		text := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: on-%s}\n"+
			"spec: {nodeName: %[1]s, containers: [{name: main, command: [sleep, infinity]}]}\n", node)
		if err := os.WriteFile(filepath.Join(manifests, node+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w := &skewed{
		t: t, backend: backend, dir: lab.Dir(filepath.Join(parent, "lab")),
		programs: map[string]string{before: old, today: nettest.Programs(t)},
		spaces:   map[string]*netns.NS{}, runtimes: map[string]*runtime{}, links: map[string]string{},
		lossy: map[string]counters.Values{}, versions: map[string]string{"node1": before, "node2": before},
	}
	t.Cleanup(func() {
		w.logs()
		w.weft("lab", "down", "--dir", string(w.dir))
	})
	w.weft("lab", "up", "--nodes", "2", "--from", manifests, "--encapsulation", backend, "--addresses", mode,
		"--machines=false", "--agent", filepath.Join(old, agent), "--dir", string(w.dir))
	w.traffic(w.attachments(), pods)
	return w
}

// weft runs today's command line, which must succeed.
func (w *skewed) weft(args ...string) string {
	w.t.Helper()
	cmd := exec.Command(filepath.Join(w.programs[today], "weft"), args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		w.t.Fatalf("weft %s: %v\n%s", strings.Join(args, " "), err, errs.String())
	}
	return out.String()
}

// logs shows what the agents logged if the test has failed.
func (w *skewed) logs() {
	if !w.t.Failed() {
		return
	}
	for node := range w.runtimes {
		b, _ := os.ReadFile(w.dir.Node(node, "agent.log"))
		w.t.Logf("agents of %s:\n%s", node, b[max(0, len(b)-20000):])
	}
}

// attachments returns the pod of each node.
func (w *skewed) attachments() map[string]lab.PodStatus {
	w.t.Helper()
	var st lab.Status
	if err := json.Unmarshal([]byte(w.weft("lab", "status", "--dir", string(w.dir), "-o", "json")), &st); err != nil {
		w.t.Fatal(err)
	}
	pods := map[string]lab.PodStatus{}
	for _, p := range st.Pods {
		pods[p.Node] = p
		w.open(p.Node+"'s pod", p.Netns)
		if len(p.IPs) != 2 {
			w.t.Fatalf("pod %s has %v", p.Name, p.IPs)
		}
	}
	for _, n := range st.Nodes {
		w.open(n.Name, w.dir.NS(n.Name))
		pods[n.Name+"'s host"] = lab.PodStatus{IPs: n.IPs}
	}
	return pods
}

func (w *skewed) open(name, path string) {
	w.t.Helper()
	ns, err := netns.Open(path)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = ns.Close() })
	w.spaces[name] = ns
}

// traffic starts the flows between the two pods, and the nodes' runtimes.
func (w *skewed) traffic(pods map[string]lab.PodStatus, dir string) {
	w.t.Helper()
	one, two := w.spaces["node1's pod"], w.spaces["node2's pod"]
	const udp, tcp = 7000, 7001
	own := &addresses{of: map[netip.Addr]string{}}
	for node, peer := range map[string]string{"node1": "node2", "node2": "node1"} {
		if err := own.take(node+"'s pod", pods[node].IPs); err != nil {
			w.t.Fatal(err)
		}
		for _, addr := range pods[node].IPs {
			echo(w.t, w.spaces[node+"'s pod"], netip.AddrPortFrom(addr, tcp))
		}
		conf, err := pluginConf(w.dir.Node(node, "net.d", "10-weft.conflist"))
		if err != nil {
			w.t.Fatal(err)
		}
		r := &runtime{
			node: node, ns: w.spaces[node], conf: conf, bin: w.dir.Bin(), dir: dir, owner: own,
			peer: netip.AddrPortFrom(pods[peer].IPs[0], tcp), results: map[string][]byte{},
		}
		r.shim.Store(ptr(filepath.Join(w.programs[before], shim)))
		w.runtimes[node] = r
		w.links[node] = nettest.Run(w.t, w.spaces[node], "ip", "-br", "link")
	}
	four, six := pods["node2"].IPs[0], pods["node1"].IPs[1]
	w.streams = []*flow{
		stream(w.t, "TCP, node1 to node2, IPv4", one, netip.AddrPortFrom(four, tcp)),
		stream(w.t, "TCP, node2 to node1, IPv6", two, netip.AddrPortFrom(six, tcp)),
	}
	w.datagrams = []*flow{
		datagrams(w.t, "UDP, node1 to node2, IPv4", one, two, four, udp),
		datagrams(w.t, "UDP, node2 to node1, IPv6", two, one, six, udp),
	}
	w.control = datagrams(w.t, "UDP between the nodes", w.spaces["node1"], w.spaces["node2"],
		pods["node2's host"].IPs[0], udp)
	for name, ns := range w.spaces {
		values, err := counters.Read(ns)
		if err != nil {
			w.t.Fatal(err)
		}
		w.lossy[name] = values
	}
	for _, r := range w.runtimes {
		r.start(w.t)
	}
	w.settle()
}

func ptr[T any](v T) *T { return &v }

// take takes one step, and waits until traffic and runtimes have continued after it.
func (w *skewed) take(s step) {
	w.t.Helper()
	now := &taken{step: s, from: w.versions[s.node], sent: map[*flow]uint64{}}
	for _, f := range append(w.datagrams, w.control) {
		now.sent[f] = f.sent.Load()
	}
	// What is on its way belongs to the step before: a killed agent would take it with it.
	for f, last := range now.sent {
		w.eventually("the last datagram of "+f.name+" before the step", func() bool { return f.newest() >= last })
	}
	pods, retries, again := w.attached()
	broken := w.broken()
	w.taken = append(w.taken, now)
	path := filepath.Join(w.programs[s.to], s.program)
	r := w.runtimes[s.node]
	if err := r.across(fmt.Sprintf("%s-step%d", s.node, len(w.taken)), func() {
		if s.program == shim {
			r.shim.Store(&path)
		} else {
			w.replace(s.node, path, s.signal)
			w.versions[s.node] = s.to
		}
	}); err != nil {
		w.t.Errorf("%s: %s: a pod from before it: %v", w.backend, s, err)
	}
	w.settle()
	podsAfter, retriesAfter, againAfter := w.attached()
	now.pods, now.retries, now.retransmitted = podsAfter-pods, retriesAfter-retries, againAfter-again
	now.resets = w.broken() - broken
	for node, r := range w.runtimes {
		for _, failure := range r.failures() {
			w.t.Errorf("%s: %s: runtime of %s: %s", w.backend, s, node, failure)
		}
	}
}

// attached returns how many pods the runtimes have attached and detached, how many ADDs they retried, and how many
// segments were sent again.
func (w *skewed) attached() (pods, retries, retransmitted uint64) {
	for _, r := range w.runtimes {
		pods, retries = pods+r.done.Load(), retries+r.retries.Load()
	}
	for _, f := range w.streams {
		retransmitted += f.info()
	}
	return pods, retries, retransmitted
}

// broken counts connections that have ended.
func (w *skewed) broken() (n int) {
	for _, f := range w.streams {
		if f.err() != nil {
			n++
		}
	}
	return n
}

// settle waits until each flow has delivered more, and each runtime has completed a pod that it began after now.
func (w *skewed) settle() {
	w.t.Helper()
	const more = 60 // messages
	type aim struct {
		what string
		ok   func() bool
	}
	var aims []aim
	for _, f := range append(append([]*flow{w.control}, w.datagrams...), w.streams...) {
		from := f.received.Load()
		aims = append(aims, aim{f.name, func() bool { return f.err() != nil || f.received.Load() >= from+more }})
	}
	for node, r := range w.runtimes {
		from := r.began.Load()
		aims = append(aims, aim{"a pod on " + node, func() bool { return r.done.Load() > from }})
	}
	for _, a := range aims {
		w.eventually(a.what, a.ok)
	}
}

// patience is how long a condition may take on a busy host.
const patience = 2 * time.Minute

func (w *skewed) eventually(what string, ok func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: %s: not after %s", w.backend, what, patience)
		}
	}
}

// replace stops a node's agent and starts another program with its arguments, environment and namespace.
func (w *skewed) replace(node, program string, signal syscall.Signal) {
	w.t.Helper()
	file := w.dir.Node(node, "agent.pid")
	var id process.ID
	if err := process.ReadJSON(file, &id); err != nil {
		w.t.Fatal(err)
	}
	proc := fmt.Sprintf("/proc/%d/", id.PID)
	args, environ := w.words(proc+"cmdline"), w.words(proc+"environ")
	if err := id.Signal(signal); err != nil {
		w.t.Fatal(err)
	}
	w.eventually("the end of the agent of "+node, func() bool { return !id.Alive() })
	log, err := os.OpenFile(w.dir.Node(node, "agent.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	ready := filepath.Join(w.t.TempDir(), "ready")
	for i := range args {
		if args[i] == "--ready-file" {
			args = args[:i]
			break
		}
	}
	cmd := exec.Command(program, append(args[1:], "--ready-file", ready)...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = "/", environ, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := w.spaces[node].Do(cmd.Start); err != nil {
		w.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	now, ok := process.Read(cmd.Process.Pid)
	if !ok {
		w.t.Fatalf("%s exited immediately", program)
	}
	if err := process.WriteJSON(file, now); err != nil { // lab down ends it
		w.t.Fatal(err)
	}
	w.eventually(program+" of "+node, func() bool {
		select {
		case err := <-ended:
			w.t.Fatalf("%s exited: %v", program, err)
		default:
		}
		_, err := os.Stat(ready)
		return err == nil
	})
}

// words reads a list of NUL-terminated strings.
func (w *skewed) words(file string) []string {
	w.t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
}

// finish ends the traffic, counts what was lost in which step, and checks that the pods have left nothing.
func (w *skewed) finish() {
	w.t.Helper()
	for node, r := range w.runtimes {
		r.stop()
		w.eventually("the links of "+node+" without pods", func() bool {
			out, _ := nettest.Try(w.spaces[node], "ip", "-br", "link")
			return names(out) == names(w.links[node])
		})
		w.eventually("an empty queue of "+node, func() bool {
			entries, err := os.ReadDir(w.dir.Node(node, "agent", "queue"))
			return err == nil && len(entries) == 0
		})
	}
	w.formats()
	for _, f := range w.streams {
		if err := f.err(); err != nil {
			w.t.Errorf("%s: %s: %v", w.backend, f.name, err)
		}
		f.stop()
	}
	all := append([]*flow{w.control}, w.datagrams...)
	end := map[*flow]uint64{}
	for _, f := range all {
		end[f] = f.sent.Load()
	}
	for _, f := range all { // packets of a flow do not overtake each other: what is missing then is lost
		w.eventually("a later datagram of "+f.name, func() bool { return f.newest() > end[f] })
	}
	w.report(all, end)
	for _, f := range all {
		f.stop()
	}
}

// names returns the first column, without the peers' indexes.
func names(table string) (out string) {
	for line := range strings.Lines(table) {
		if fields := strings.Fields(line); len(fields) > 0 {
			out += strings.Split(fields[0], "@")[0] + "\n"
		}
	}
	return out
}

// formats checks that each file in a state directory has a recorded format, so that an agent that cannot read it refuses
// the directory, or is one that every agent computes again.
func (w *skewed) formats() {
	w.t.Helper()
	rebuilt := map[string]bool{
		"format.json": true, "mesh.json": true, "queue": true, "vm": true, "cluster": true, "boot": true, "reserve": true, "admin.sock": true,
		"wireguard.key": true, // WireGuard's own format
	}
	for node := range w.runtimes {
		b, err := os.ReadFile(w.dir.Node(node, "agent", "format.json"))
		if err != nil {
			w.t.Fatal(err)
		}
		var known struct{ Formats map[string]int }
		if err := json.Unmarshal(b, &known); err != nil {
			w.t.Fatal(err)
		}
		entries, err := os.ReadDir(w.dir.Node(node, "agent"))
		if err != nil {
			w.t.Fatal(err)
		}
		for _, e := range entries {
			name := e.Name()
			if e.Type()&os.ModeSocket == 0 && !strings.HasSuffix(name, ".lock") && !rebuilt[name] && known.Formats[name] == 0 {
				w.t.Errorf("%s: file %s of the state directory has no format in format.json (node/agent formats)", node, name)
			}
		}
	}
}

// report prints a line per step, and fails the test for what a step has lost. A loss between the nodes themselves, whose
// packets no agent touches, in the same step, or an overflow of a receiver's buffer, is the host's.
func (w *skewed) report(all []*flow, end map[*flow]uint64) {
	w.t.Helper()
	overflows := w.overflows()
	for i, s := range w.taken {
		until := end
		if i+1 < len(w.taken) {
			until = w.taken[i+1].sent
		}
		sent, lost := uint64(0), 0
		for _, f := range w.datagrams {
			sent, lost = sent+until[f]-s.sent[f], lost+f.missing(s.sent[f], until[f])
		}
		w.t.Logf("%s: %s: %d datagrams, %d lost; %d resets, %d segments sent again; %d pods, %d ADDs retried",
			w.backend, s.step, sent, lost, s.resets, s.retransmitted, s.pods, s.retries)
		others := overflows + uint64(w.control.missing(s.sent[w.control], until[w.control]))
		switch {
		case lost == 0 || w.inAgent && s.program == agent && (s.from == before || s.to == before):
		case others > 0:
			w.t.Logf("%s: %s: the host lost %d datagrams that no step touches, so the test ignores these", w.backend, s.step, others)
		default:
			w.t.Errorf("%s: %s: %d of %d datagrams lost", w.backend, s.step, lost, sent)
		}
	}
	for _, f := range all {
		if n := f.refused.Load(); n > 0 {
			w.t.Logf("%s: %s: the sender's kernel refused %d", w.backend, f.name, n)
		}
	}
}

// overflows counts the datagrams that found a receiver's buffer full.
func (w *skewed) overflows() (n uint64) {
	w.t.Helper()
	for name, was := range w.lossy {
		now, err := counters.Read(w.spaces[name])
		if err != nil {
			w.t.Fatal(err)
		}
		for _, c := range []string{"UdpRcvbufErrors", "Udp6RcvbufErrors"} {
			n += now[c] - was[c]
		}
	}
	return n
}
