// SPDX-License-Identifier: Apache-2.0

package qemu_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/vm/qemu"
)

// TestOpenMacvtap: each queue of a macvtap in a pod is opened, without a device file in a directory: temporary
// directories are often mounted nodev.
func TestOpenMacvtap(t *testing.T) {
	nettest.Need(t, "macvtap")
	pod := nettest.NS(t, "pod")
	for _, line := range []string{
		"link add lower type bridge", "link add link lower name eth0 numrxqueues 2 numtxqueues 2 type macvtap mode bridge",
		"link set eth0 up",
	} {
		nettest.IP(t, pod, line)
	}
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	for _, queues := range []int{0, 2} {
		files, err := qemu.OpenTap(pod, model.VMDevice{Name: "default", Target: "eth0", Queues: queues})
		if errors.Is(err, unix.EPERM) {
			nettest.SkipMissing(t, "a node for a macvtap needs root")
		}
		if err != nil || len(files) != max(queues, 1) {
			t.Fatalf("%d queues: %v, %v", queues, files, err)
		}
		for _, f := range files {
			if name := link(t, f); name != "eth0" {
				t.Errorf("it is %q", name)
			}
			_ = f.Close()
		}
	}
}

// link returns the name of the link of a tap's file.
func link(t *testing.T, f *os.File) string {
	t.Helper()
	ifr, err := unix.NewIfreq("")
	if err == nil {
		err = unix.IoctlIfreq(int(f.Fd()), unix.TUNGETIFF, ifr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ifr.Name()
}
