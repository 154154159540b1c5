// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

// failWrites makes all writes of an agent to its ledger fail, as on a read-only file system, until allow is called.
func (a *agent) failWrites(t testing.TB) (allow func()) {
	t.Helper()
	const writes = "pwrite64,fdatasync,fsync,ftruncate"
	pid := a.cmd.Process.Pid
	cmd := exec.Command("strace", "-f", "-q", "-o", "/dev/null", "-e", "trace="+writes, "-e",
		"inject="+writes+":error=EROFS", "-P", filepath.Join(a.dir, "ledger.db"), "-p", strconv.Itoa(pid))
	if err := cmd.Start(); err != nil {
		nettest.Skip(t, "strace does not work here: "+err.Error())
	}
	end := func() { _ = cmd.Process.Signal(syscall.SIGINT); _ = cmd.Wait() }
	t.Cleanup(end)
	for until := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
		if err != nil || len(tasks) == 0 {
			t.Fatalf("the agent's threads: %v, %v", tasks, err)
		}
		if !slices.ContainsFunc(tasks, func(path string) bool {
			b, _ := os.ReadFile(path)
			return strings.Contains(string(b), "TracerPid:\t0\n")
		}) {
			return end
		}
		if time.Now().After(until) {
			t.Fatal("strace does not follow the agent's threads")
		}
	}
}

// An agent whose state directory becomes read-only rejects ADDs and leaves nothing of them; attachments keep working,
// and pending work is done when the directory is writable again.
func TestAgentWhoseStateBecomesReadOnly(t *testing.T) {
	t.Run("until the file system is writable", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "state")
		breakIt, mend := nettest.FragileDir(t, dir)
		stateBecomesReadOnly(t, dir, func(a *agent) func() {
			breakIt()
			return func() {
				a.stop()
				mend()
				*a = *a.w.start(dir)
			}
		})
	})
	t.Run("for a while", func(t *testing.T) {
		if out, err := nettest.Try(nil, "strace", "-q", "-o", "/dev/null", "true"); err != nil {
			nettest.Skip(t, "strace does not work here: "+out)
		}
		stateBecomesReadOnly(t, filepath.Join(t.TempDir(), "state"), func(a *agent) func() { return a.failWrites(t) })
	})
}

// stateBecomesReadOnly: freeze makes the directory read-only, and returns what makes it writable again.
func stateBecomesReadOnly(t *testing.T, dir string, freeze func(*agent) func()) {
	t.Helper()
	w := newWorld(t)
	conf := w.lists()["bridge"]
	before := takeSnapshot(t, w.dirs()...)
	a := w.start(dir)
	var pods []*pod
	addr := map[*pod]string{}
	for range 4 {
		p := w.pod()
		addr[p], _, _ = strings.Cut(a.mustExecute(order{Verb: "ADD", ID: p.id, Netns: p.netns, Conf: conf}).IPs[0], "/")
		pods = append(pods, p)
	}
	speak := func() {
		t.Helper()
		nettest.Run(t, pods[1].ns, "ping", "-n", "-c1", "-W10", addr[pods[2]])
		nettest.Run(t, pods[3].ns, "ping", "-n", "-c1", "-W10", addr[pods[1]])
	}
	attached := takeSnapshot(t, w.dirs()...)
	thaw := freeze(a)
	refused := w.pod()
	for range 3 {
		r, ok := a.execute(order{Verb: "ADD", ID: refused.id, Netns: refused.netns, Conf: conf})
		if !ok {
			t.Fatal("the agent died")
		}
		if r.Code != int(model.CodeIO) || !strings.Contains(r.Err, dir) || !strings.Contains(r.Err, syscall.EROFS.Error()) ||
			r.Hint == "" {
			t.Fatalf("ADD: code %d, %q, hint %q", r.Code, r.Err, r.Hint)
		}
		expectSameHost(t, "ADD with a read-only state", attached, w.dirs()...)
	}
	expectUniqueAddrs(t, pods)
	speak()
	// A DEL that cannot be recorded either fails, and the runtime retries it, or succeeds.
	gone := pods[0]
	r, ok := a.execute(order{Verb: "DEL", ID: gone.id, Netns: gone.netns, Conf: conf})
	t.Logf("DEL: %q", r.Err)
	if !ok {
		t.Fatal("the agent died")
	} else if r.Err != "" && (r.Code != int(model.CodeIO) || !strings.Contains(r.Err, dir) || r.Hint == "") {
		t.Fatalf("DEL: code %d, %q, hint %q", r.Code, r.Err, r.Hint)
	}
	// DEL of an unknown attachment is no error.
	a.mustExecute(order{Verb: "DEL", ID: refused.id, Netns: refused.netns, Conf: conf})
	expectUniqueAddrs(t, pods[1:])
	thaw()
	speak()
	a.mustExecute(order{Verb: "ADD", ID: refused.id, Netns: refused.netns, Conf: conf})
	expectUniqueAddrs(t, append(pods[1:len(pods):len(pods)], refused))
	for _, p := range append(pods, refused) {
		a.mustExecute(order{Verb: "DEL", ID: p.id, Netns: p.netns, Conf: conf})
	}
	expectSameHost(t, "everything detached", before, w.dirs()...)
	a.stop()
	a.expectEmptyLedger("everything detached")
}
