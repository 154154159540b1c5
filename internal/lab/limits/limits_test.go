// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
)

// host writes a procfs with limits and one inotify instance in use.
func host(t *testing.T, files map[string]string) string {
	t.Helper()
	proc := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(proc, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range files {
		write(name, text)
	}
	fd := filepath.Join(proc, "7/fd")
	if err := errors.Join(os.MkdirAll(fd, 0o755), os.Symlink("anon_inode:inotify", filepath.Join(fd, "3"))); err != nil {
		t.Fatal(err)
	}
	return proc
}

// Each limit that is too small is named, with its value, what is needed and the command; those that suffice are not.
func TestEachLimitIsNamed(t *testing.T) {
	proc := host(t, map[string]string{
		"loadavg":                           "0.1 0.2 0.3 1/1000 77\n",
		"sys/fs/inotify/max_user_instances": "128\n", "sys/fs/inotify/max_user_watches": "1000000\n",
		"sys/kernel/pid_max": "4194304\n", "sys/kernel/threads-max": "3000\n", "sys/fs/file-max": "9223372036854775807\n",
		"sys/fs/file-nr": "1312\t0\t9223372036854775807\n", "sys/net/ipv4/neigh/default/gc_thresh3": "1024\n",
		"sys/user/max_net_namespaces": "700\n",
	})
	if err := (Lab{Nodes: 10, Pods: 20}).Check(proc); err != nil {
		t.Error(err)
	}
	err := Lab{Nodes: 100, Pods: 600}.Check(proc)
	var f *model.Error
	if !errors.As(err, &f) || f.Code != model.CodeLimited {
		t.Fatalf("100 nodes: %v", err)
	}
	for _, want := range []string{
		"100 nodes and 600 pods do not fit on this host", "fs.inotify.max_user_instances is 128, and 409 inotify instances are needed (1 are in use)",
		"kernel.threads-max is 3000, and 10300 threads are needed (1000 are in use)",
		"net.ipv4.neigh.default.gc_thresh3 is 1024, and 1300 neighbor entries", "user.max_net_namespaces is 700, and 701 network namespaces",
	} {
		if !strings.Contains(f.Msg, want) {
			t.Errorf("no %q in %q", want, f.Msg)
		}
	}
	for _, other := range []string{"max_user_watches", "pid_max", "file-max", "ipv6"} {
		if strings.Contains(f.Msg+f.Hint, other) {
			t.Errorf("%s is named: %v", other, err)
		}
	}
	if want := "sysctl -w fs.inotify.max_user_instances=1024 user.max_net_namespaces=1402 kernel.threads-max=20600 " +
		"net.ipv4.neigh.default.gc_thresh3=4096, or choose fewer --nodes or pods"; f.Hint != want {
		t.Errorf("hint %q", f.Hint)
	}
}
