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

// fragile makes dir a file system of its own that the kernel makes read-only, whatever is open there, as soon as it
// meets an error in it: a remount would be refused while an agent has files open. It returns how to break it, and how
// to have it mended while nobody uses it.
func fragile(t testing.TB, dir string) (breakIt, mend func()) {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	f, err := os.Create(image)
	if err == nil {
		err = f.Truncate(16 << 20)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"mke2fs", "e2fsck", "losetup"} {
		if _, err := exec.LookPath(program); err != nil {
			nettest.Without(t, "no "+program+": the file system that breaks is an ext4")
		}
	}
	nettest.Run(t, nil, "mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", image)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := nettest.Try(nil, "losetup", "--find", "--show", image)
	if err != nil {
		nettest.Skip(t, "no loop device: "+out)
	}
	device := strings.TrimSpace(out)
	t.Cleanup(func() { nettest.Run(t, nil, "losetup", "--detach", device) })
	mount := func() { nettest.Run(t, nil, "mount", "-t", "ext4", "-o", "errors=remount-ro", device, dir) }
	mount()
	t.Cleanup(func() { nettest.Run(t, nil, "umount", dir) })
	trigger := filepath.Join("/sys/fs/ext4", filepath.Base(device), "trigger_fs_error")
	breakIt = func() {
		if err := os.WriteFile(trigger, []byte("1"), 0o200); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "probe"), nil, 0o600); !isReadOnly(err) {
			t.Fatalf("the file system is not read-only: %v", err)
		}
	}
	mend = func() {
		nettest.Run(t, nil, "umount", dir)
		_, _ = nettest.Try(nil, "e2fsck", "-fy", device) // its exit code says that it has mended something
		mount()
	}
	return breakIt, mend
}

func isReadOnly(err error) bool {
	return err != nil && strings.Contains(err.Error(), syscall.EROFS.Error())
}

// refuse has every thread of an agent fail to write its ledger, as in a read-only file system, until allow is called.
func (a *agent) refuse(t testing.TB) (allow func()) {
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

// An agent whose state directory becomes read-only under it refuses ADDs and leaves nothing of them; what is attached
// goes on, and all is done that was not when the directory can be written again.
func TestAgentWhoseStateBecomesReadOnly(t *testing.T) {
	t.Run("until its file system is mended", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "state")
		breakIt, mend := fragile(t, dir)
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
		stateBecomesReadOnly(t, filepath.Join(t.TempDir(), "state"), func(a *agent) func() { return a.refuse(t) })
	})
}

// stateBecomesReadOnly: freeze makes the directory read-only, and returns what makes it writable again.
func stateBecomesReadOnly(t *testing.T, dir string, freeze func(*agent) func()) {
	t.Helper()
	w := newWorld(t)
	conf := w.lists()["bridge"]
	before := look(t, w.dirs()...)
	a := w.start(dir)
	var pods []*pod
	addr := map[*pod]string{}
	for range 4 {
		p := w.pod()
		addr[p], _, _ = strings.Cut(a.must(order{Verb: "ADD", ID: p.id, Netns: p.netns, Conf: conf}).IPs[0], "/")
		pods = append(pods, p)
	}
	speak := func() {
		t.Helper()
		nettest.Run(t, pods[1].ns, "ping", "-n", "-c1", "-W10", addr[pods[2]])
		nettest.Run(t, pods[3].ns, "ping", "-n", "-c1", "-W10", addr[pods[1]])
	}
	attached := look(t, w.dirs()...)
	thaw := freeze(a)
	refused := w.pod()
	for range 3 {
		r, ok := a.ask(order{Verb: "ADD", ID: refused.id, Netns: refused.netns, Conf: conf})
		if !ok {
			t.Fatal("the agent died")
		}
		if r.Code != int(model.CodeIO) || !strings.Contains(r.Err, dir) || !strings.Contains(r.Err, syscall.EROFS.Error()) ||
			r.Hint == "" {
			t.Fatalf("ADD: code %d, %q, hint %q", r.Code, r.Err, r.Hint)
		}
		same(t, "ADD with a read-only state", attached, w.dirs()...)
	}
	unique(t, pods)
	speak()
	// A DEL that cannot be remembered is an error, after which the runtime asks again, or it is done.
	gone := pods[0]
	r, ok := a.ask(order{Verb: "DEL", ID: gone.id, Netns: gone.netns, Conf: conf})
	t.Logf("DEL: %q", r.Err)
	if !ok {
		t.Fatal("the agent died")
	} else if r.Err != "" && (r.Code != int(model.CodeIO) || !strings.Contains(r.Err, dir) || r.Hint == "") {
		t.Fatalf("DEL: code %d, %q, hint %q", r.Code, r.Err, r.Hint)
	}
	// What has never been there is no error.
	a.must(order{Verb: "DEL", ID: refused.id, Netns: refused.netns, Conf: conf})
	unique(t, pods[1:])
	thaw()
	speak()
	a.must(order{Verb: "ADD", ID: refused.id, Netns: refused.netns, Conf: conf})
	unique(t, append(pods[1:len(pods):len(pods)], refused))
	for _, p := range append(pods, refused) {
		a.must(order{Verb: "DEL", ID: p.id, Netns: p.netns, Conf: conf})
	}
	same(t, "everything detached", before, w.dirs()...)
	a.stop()
	a.empty("everything detached")
}
