// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/sandbox/process"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// start starts a process, which the tested code has to kill.
func start(t *testing.T, ns *netns.NS, env []string, argv ...string) (pid int, ended <-chan error) {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	if err := ns.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd.Process.Pid, done
}

func TestLabProcesses(t *testing.T) {
	d := Dir(t.TempDir())
	ns, err := netns.New(d.NS("node1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close(); _ = netns.Remove(d.NS("node1")) })
	inside, insideEnded := start(t, ns, nil, "sleep", "60")
	_, markedEnded := start(t, nil, []string{labVar + "=" + string(d)}, "sh", "-c",
		"unset "+labVar+"; sleep 60 & wait")
	other, _ := start(t, nil, []string{labVar + "=" + string(d) + "2"}, "sleep", "60")

	// Another lab has the same path in another mount namespace.
	hidden, _ := start(t, nil, []string{labVar + "=" + string(d)}, "unshare", "--mount", "sh", "-ec",
		"mount -t tmpfs weft-other "+string(d)+"; exec sleep 60")

	namespaces, err := d.namespacesBelow()
	if err != nil {
		t.Fatal(err)
	}
	find := func() ([]process.ID, error) { return labProcesses(namespaces, string(d)) }
	eventually(t, "process in the namespace, process with the variable, and its child", func() bool {
		found, err := find()
		return err == nil && len(found) == 3 &&
			slices.ContainsFunc(found, func(p process.ID) bool { return p.PID == inside }) &&
			!slices.ContainsFunc(found, func(p process.ID) bool { return p.PID == other || p.PID == os.Getpid() })
	})
	if err := killAll(context.Background(), find); err != nil {
		t.Fatal(err)
	}
	for _, ended := range []<-chan error{insideEnded, markedEnded} {
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			t.Fatal("a process of the lab survived")
		}
	}
	for _, pid := range []int{other, hidden} {
		if _, ok := process.Read(pid); !ok {
			t.Errorf("process %d of another lab was killed", pid)
		}
	}
}

// TestOwnNamespace: if the test's own namespace is mounted in a state directory, its processes are not killed.
func TestOwnNamespace(t *testing.T) {
	d := Dir(t.TempDir())
	path := filepath.Join(string(d), "ns", "own")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	nettest.Run(t, nil, "mount", "--bind", "/proc/self/ns/net", path)
	got, err := d.namespacesBelow()
	if err != nil || len(got) != 0 {
		t.Errorf("got %v, %v; want none", got, err)
	}
	if err := unmountAll(string(d)); err != nil {
		t.Error(err)
	}
	if left, err := mountsBelow(string(d)); err != nil || len(left) != 0 {
		t.Errorf("still mounted: %v, %v", left, err)
	}
}

// TestPIDFileOfAnotherProcess: a PID file whose PID was reused does not count as running.
func TestPIDFileOfAnotherProcess(t *testing.T) {
	d := Dir(t.TempDir())
	if err := os.MkdirAll(d.Node("node1"), 0o755); err != nil {
		t.Fatal(err)
	}
	self, _ := process.Read(os.Getpid())
	for _, c := range []struct {
		id   process.ID
		want bool
	}{{self, true}, {process.ID{PID: self.PID, Start: self.Start + 1}, false}} {
		if err := process.WriteJSON(d.pidFile("node1", roleAgent), c.id); err != nil {
			t.Fatal(err)
		}
		if got := d.running("node1", roleAgent); got != c.want {
			t.Errorf("%+v runs: %v", c.id, got)
		}
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("within 5 s: no %s", what)
		}
	}
}
