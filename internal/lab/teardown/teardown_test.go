// SPDX-License-Identifier: Apache-2.0

package teardown

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
	d := t.TempDir()
	ns, err := netns.New(filepath.Join(d, "ns", "node1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close(); _ = netns.Remove(filepath.Join(d, "ns", "node1")) })
	inside, insideEnded := start(t, ns, nil, "sleep", "60")
	_, markedEnded := start(t, nil, []string{Variable + "=" + d}, "sh", "-c",
		"unset "+Variable+"; sleep 60 & wait")
	other, _ := start(t, nil, []string{Variable + "=" + d + "2"}, "sleep", "60")

	// A user's shell chooses the lab for the commands in it, and is none of its processes.
	chose, _ := start(t, nil, []string{"WEFT_LAB=" + d}, "sleep", "60")

	// Another lab has the same path in another mount namespace.
	hidden, _ := start(t, nil, []string{Variable + "=" + d}, "unshare", "--mount", "sh", "-ec",
		"mount -t tmpfs weft-other "+d+"; exec sleep 60")

	namespaces, err := Namespaces(d)
	if err != nil {
		t.Fatal(err)
	}
	find := func() ([]process.ID, error) { return Processes(namespaces, Lab(d)) }
	eventually(t, "process in the namespace, process with the variable, and its child", func() bool {
		found, err := find()
		return err == nil && len(found) == 3 &&
			slices.ContainsFunc(found, func(p process.ID) bool { return p.PID == inside }) &&
			!slices.ContainsFunc(found, func(p process.ID) bool { return p.PID == other || p.PID == os.Getpid() })
	})
	if err := Kill(context.Background(), find); err != nil {
		t.Fatal(err)
	}
	for _, ended := range []<-chan error{insideEnded, markedEnded} {
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatal("a process of the lab survived")
		}
	}
	for _, pid := range []int{other, hidden, chose} {
		if _, ok := process.Read(pid); !ok {
			t.Errorf("process %d is not the lab's, and was killed", pid)
		}
	}
}

// TestOwnNamespace: if the test's own namespace is mounted in a state directory, its processes are not killed.
func TestOwnNamespace(t *testing.T) {
	d := t.TempDir()
	path := filepath.Join(d, "ns", "own")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	nettest.Run(t, nil, "mount", "--bind", "/proc/self/ns/net", path)
	got, err := Namespaces(d)
	if err != nil || len(got) != 0 {
		t.Errorf("got %v, %v; want none", got, err)
	}
	if err := Unmount(d); err != nil {
		t.Error(err)
	}
	if left, err := Mounts(d); err != nil || len(left) != 0 {
		t.Errorf("still mounted: %v, %v", left, err)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("within a minute: no %s", what)
		}
	}
}
