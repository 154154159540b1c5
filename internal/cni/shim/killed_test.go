// SPDX-License-Identifier: Apache-2.0

package shim_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/nettest"
)

// keeping are the system calls by which weft-cni asks for the agent and keeps a DEL.
const keeping = "socket connect read openat mkdirat write fsync close ?rename renameat exit_group"

// TestKilledWhileKeeping kills weft-cni at each system call of a DEL without an agent. In the queue is nothing, a
// temporary file that agents pass over, or the whole DEL; the runtime is answered with success only when the whole DEL
// is there.
func TestKilledWhileKeeping(t *testing.T) {
	bin := build(t)
	if out, err := nettest.Try(nil, "strace", "-q", "-o", "/dev/null", "true"); err != nil {
		nettest.Skip(t, "strace does not work here: "+out)
	}
	kills, kept := 0, 0
	for _, name := range strings.Fields(keeping) {
		for k := 1; ; k++ {
			socket := filepath.Join(t.TempDir(), "run", "agent.sock")
			killed := killedAt(t, bin, socket, name, k)
			done := queued(t, socket)
			if !killed {
				if done != 1 {
					t.Errorf("weft-cni says that the DEL is kept, and %d are in the queue", done)
				}
				break
			}
			kills, kept = kills+1, kept+done
		}
	}
	t.Logf("%d kills, after %d of them the DEL was kept already", kills, kept)
	if kills < 10 || kept == 0 || kept == kills {
		t.Errorf("%d kills and %d kept DELs are not all of the call", kills, kept)
	}
}

// killedAt does a DEL that is killed at the k-th system call of a name, if there are so many.
func killedAt(t *testing.T, bin, socket, name string, k int) (killed bool) {
	t.Helper()
	cmd := exec.Command("strace", "-f", "-q", "-o", "/dev/null", "-e", "trace="+name, "-e",
		fmt.Sprintf("inject=%s:signal=KILL:when=%d", name, k), bin)
	cmd.Env = []string{"CNI_COMMAND=DEL", "CNI_CONTAINERID=c1", "CNI_IFNAME=eth0", "CNI_PATH=/opt/cni/bin"}
	cmd.Stdin = strings.NewReader(confFor(socket))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		status := exit.Sys().(syscall.WaitStatus)
		killed = status.Signaled() || status.ExitStatus() == 128+int(syscall.SIGKILL)
	}
	if err != nil && !killed {
		t.Fatalf("%s %d: %v: %s", name, k, err, out)
	}
	return killed
}

// queued counts the DELs in the queue, and checks that each is whole.
func queued(t *testing.T, socket string) int {
	t.Helper()
	files, err := os.ReadDir(wire.QueueDir(socket))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	n := 0
	for _, f := range files {
		if strings.HasPrefix(f.Name(), wire.TempPrefix) {
			continue
		}
		b, err := os.ReadFile(filepath.Join(wire.QueueDir(socket), f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		r, err := wire.ParseRequest(b)
		if err != nil || !strings.HasSuffix(f.Name(), wire.QueueSuffix) || r.Getenv("CNI_CONTAINERID") != "c1" ||
			string(r.Stdin()) != confFor(socket) {
			t.Errorf("%s in the queue: %v, %q", f.Name(), err, b)
		}
		n++
	}
	return n
}

// A DEL that cannot be kept because the file system is read-only is an error that names the place; nothing is left half
// done.
func TestQueueOnReadOnlyDisk(t *testing.T) {
	bin := build(t)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		nettest.Skip(t, fmt.Sprintf("a tmpfs cannot be mounted here: %v", err))
	}
	defer func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }()
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "agent.sock")
	r := run(t, bin, confFor(socket), "CNI_COMMAND=DEL")
	if r.exit != 1 || r.fault.Code != 5 || !strings.Contains(r.fault.Msg, wire.QueueDir(socket)) ||
		!strings.Contains(r.fault.Msg, "read-only") {
		t.Errorf("exit %d, %s", r.exit, r.stdout)
	}
}
