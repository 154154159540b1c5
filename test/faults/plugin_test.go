// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// world is a node with weft's plugins in a separate directory.
type world struct {
	t       testing.TB
	bin     string // plugins
	data    string // host-local's files
	journal string
	marks   string
	nets    string // container namespaces
	n       int
}

func newWorld(t testing.TB) *world {
	t.Helper()
	// Wait for the cleanup of earlier tests.
	_, _ = nettest.Try(nil, "ip", "link", "del", "wbr0")
	_, _ = nettest.Try(nil, "nft", "flush", "ruleset")
	const patience = 30 * time.Second // the kernel deletes links of a namespace asynchronously
	for until := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		out, _ := nettest.Try(nil, "ip", "-o", "link", "show", "type", "veth")
		if out == "" {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("links of an earlier test still exist: %s", out)
		}
	}
	dir := t.TempDir()
	w := &world{
		t: t, bin: dir + "/bin", data: dir + "/data", journal: dir + "/journal", marks: dir + "/marks", nets: dir + "/netns",
	}
	for _, d := range []string{w.bin, w.data, w.marks} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bridge", "ptp", "loopback", marker} {
		if err := os.Symlink(self, filepath.Join(w.bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// dirs returns the directories of files.
func (w *world) dirs() []string { return []string{w.data, w.journal, w.marks} }

// conf returns a configuration of one of weft's interface plugins, with all features that create state.
func (w *world) conf(typ string) string {
	return fmt.Sprintf(
		`{"cniVersion":"1.1.0","name":"faulty","type":%q,"bridge":"wbr0","isDefaultGateway":true,"ipMasq":true,
"ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"10.77.0.0/24"}],[{"subnet":"fd77::/112"}]],"routes":[{"dst":"0.0.0.0/0"}]}}`, typ, w.data)
}

// pod is a container that is attached.
type pod struct {
	id, netns string
	ns        *netns.NS
}

func (w *world) pod() *pod {
	w.t.Helper()
	w.n++
	p := &pod{id: fmt.Sprintf("pod%d", w.n), netns: filepath.Join(w.nets, strconv.Itoa(w.n))}
	var err error
	if p.ns, err = netns.New(p.netns); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { w.removeNetns(p) })
	return p
}

// removeNetns deletes the pod's namespace; a second call does nothing.
func (w *world) removeNetns(p *pod) {
	if p.ns == nil {
		return
	}
	if err := errors.Join(p.ns.Close(), netns.Remove(p.netns)); err != nil {
		w.t.Error(err)
	}
	p.ns = nil
}

// outcome is the result of a call.
type outcome struct {
	stdout, stderr string
	killed         bool
	err            error
}

// failure says where a call fails; the zero value means nowhere.
type failure struct {
	how string
	at  int
	// after kills the call after a time.
	after time.Duration
}

func (w *world) call(verb, conf string, p *pod, f failure) outcome {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	typ, _, _ := strings.Cut(conf[strings.Index(conf, `"type":"`)+8:], `"`)
	cmd := exec.CommandContext(ctx, filepath.Join(w.bin, typ))
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+verb, "CNI_PATH="+w.bin, "WEFT_JOURNAL_DIR="+w.journal,
		howVar+"="+f.how, stepVar+"="+strconv.Itoa(f.at))
	if p != nil {
		cmd.Env = append(cmd.Env, "CNI_CONTAINERID="+p.id, "CNI_IFNAME=eth0", "CNI_NETNS="+p.netns)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(conf), &stdout, &stderr
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	if f.after > 0 {
		timer := time.AfterFunc(f.after, func() { _ = cmd.Process.Signal(syscall.SIGKILL) })
		defer timer.Stop()
	}
	err := cmd.Wait()
	o := outcome{stdout: stdout.String(), stderr: stderr.String(), err: err}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		o.killed = exit.Sys().(syscall.WaitStatus).Signaled()
	}
	return o
}

// mustCall is a call that must succeed.
func (w *world) mustCall(verb, conf string, p *pod) outcome {
	w.t.Helper()
	o := w.call(verb, conf, p, failure{})
	if o.err != nil {
		w.t.Fatalf("%s %s: %v %s %s", verb, p.id, o.err, o.stdout, o.stderr)
	}
	return o
}

// count returns the number of steps of a call.
func (w *world) count(verb, conf string, p *pod) int {
	w.t.Helper()
	o := w.call(verb, conf, p, failure{how: "count"})
	n, err := strconv.Atoi(o.stderr)
	if o.err != nil || err != nil || n == 0 {
		w.t.Fatalf("count %s: %v %s %s", verb, o.err, o.stdout, o.stderr)
	}
	return n
}

// gc returns a configuration for GC with these valid attachments.
func gc(conf string, valid ...*pod) string {
	var list []string
	for _, p := range valid {
		list = append(list, fmt.Sprintf(`{"containerID":%q,"ifname":"eth0"}`, p.id))
	}
	return strings.Replace(conf, "{", `{"cni.dev/valid-attachments":[`+strings.Join(list, ",")+`],`, 1)
}

// withPrev returns a configuration with the result of the ADD as prevResult.
func withPrev(conf, result string) string {
	return strings.Replace(conf, "{", `{"prevResult":`+result+`,`, 1)
}
