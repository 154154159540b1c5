// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// running starts a process that a test leaves to others to end.
func running(t *testing.T, ns *netns.NS, env []string, argv ...string) (pid int, ended <-chan error) {
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

func TestInhabitantsAreFoundAndOnlyThey(t *testing.T) {
	d := Dir(t.TempDir())
	ns, err := netns.New(d.NS("node1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close(); _ = netns.Remove(d.NS("node1")) })
	inside, insideEnded := running(t, ns, nil, "sleep", "60")
	_, markedEnded := running(t, nil, []string{markVar + "=" + string(d)}, "sh", "-c", "unset "+markVar+"; sleep 60 & wait")
	other, _ := running(t, nil, []string{markVar + "=" + string(d) + "2"}, "sleep", "60")

	namespaces, err := d.namespacesBelow()
	if err != nil {
		t.Fatal(err)
	}
	find := func() ([]process, error) { return inhabitants(namespaces, string(d)) }
	eventually(t, "inhabitant, marked one and its child", func() bool {
		found, err := find()
		return err == nil && len(found) == 3 &&
			slices.ContainsFunc(found, func(p process) bool { return p.pid == inside }) &&
			!slices.ContainsFunc(found, func(p process) bool { return p.pid == other || p.pid == os.Getpid() })
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
	if _, ok := readProcess(other); !ok {
		t.Error("a process of another lab was killed")
	}
}

// The test's own namespace may be bound somewhere in a state directory: nobody in it must die.
func TestOwnNamespaceIsNeverTheLabs(t *testing.T) {
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

func TestPIDFileOfAnotherProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.pid")
	self, _ := readProcess(os.Getpid())
	if err := writePID(path, self); err != nil {
		t.Fatal(err)
	}
	if got, ok := readPID(path); !ok || got != self {
		t.Errorf("got %v %v, want %v", got, ok, self)
	}
	if err := os.WriteFile(path, fmt.Appendf(nil, "%d %d\n", self.pid, self.start+1), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, ok := readPID(path); ok {
		t.Error("a later process with the same number passes for the one that was started")
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
