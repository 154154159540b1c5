// SPDX-License-Identifier: Apache-2.0

package nettest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// FragileDir mounts an ext4 file system at dir that the kernel remounts read-only at the first error, even while files
// are open, when it would refuse another remount. breakIt triggers such an error; mend repairs the file system while no
// process uses it.
func FragileDir(t testing.TB, dir string) (breakIt, mend func()) {
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
			SkipMissing(t, "no "+program+": the file system that breaks is an ext4")
		}
	}
	Run(t, nil, "mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", image)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := Try(nil, "losetup", "--find", "--show", image)
	if err != nil {
		Skip(t, "no loop device: "+out)
	}
	device := strings.TrimSpace(out)
	t.Cleanup(func() { Run(t, nil, "losetup", "--detach", device) })
	mount := func() { Run(t, nil, "mount", "-t", "ext4", "-o", "errors=remount-ro", device, dir) }
	mount()
	t.Cleanup(func() { Run(t, nil, "umount", dir) })
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
		Run(t, nil, "umount", dir)
		_, _ = Try(nil, "e2fsck", "-fy", device) // its exit code is not 0 after a repair
		mount()
	}
	return breakIt, mend
}

func isReadOnly(err error) bool {
	return err != nil && strings.Contains(err.Error(), syscall.EROFS.Error())
}
