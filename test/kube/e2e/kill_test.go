// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestCleanUp: the creation of a second cluster is killed at several moments; down removes everything of it, and does
// not affect the first one.
func TestCleanUp(t *testing.T) {
	c := kube(t)
	other := Cluster{name: "e2edie"}
	for _, after := range []time.Duration{500 * time.Millisecond, 3 * time.Second, 14 * time.Second} {
		cmd := exec.Command("../cluster", "up", "--name", other.name, "--cni", "none", "--no-dns")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // with its child processes
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(after)
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil && after < 10*time.Second {
			t.Error(err)
		}
		_ = cmd.Wait()
		if out, err := other.call(context.Background(), "", "down", "--name", other.name); err != nil {
			t.Fatalf("down after %s: %v%s", after, err, out)
		}
		for _, pattern := range []string{
			"/run/netns/wk-e2edie*", "/sys/fs/cgroup/wk-e2edie*", "/sys/fs/cgroup/*/wk-e2edie*",
			filepath.Join(os.TempDir(), "weft-kube", "e2edie"),
		} {
			if left, _ := filepath.Glob(pattern); len(left) > 0 {
				t.Errorf("down after %s leaves %v", after, left)
			}
		}
		if out, err := exec.Command("ps", "-eo", "args").Output(); err != nil ||
			strings.Contains(string(out), "weft-kube/e2edie/") {
			t.Errorf("down after %s leaves processes (%v)", after, err)
		}
	}
	c.kubectl(t, "get", "nodes")
}
