// SPDX-License-Identifier: Apache-2.0

package nettest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// PCI provides the test with a network interface on a PCI bus: its address ("0000:00:10.0") and the name of its link,
// which is in the test's own namespace, down, until the test ends; /sys is mounted for that namespace. Only the
// test VM (test/vm) has spare interfaces: a real host's are never touched.
func PCI(t testing.TB) (address, link string) {
	t.Helper()
	if os.Getenv("WEFT_VM") == "" {
		Skip(t, "only the test VM has network interfaces on a PCI bus to give away")
	}
	devices, err := filepath.Glob("/sys/class/net/*/device") // /sys is still that of the initial namespace
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, d := range devices {
		path, err := filepath.EvalSymlinks(d)
		if a := filepath.Base(filepath.Dir(path)); err == nil && strings.HasPrefix(a, "0000:") {
			found[filepath.Base(filepath.Dir(d))] = a
		}
	}
	for link, address = range found {
		break
	}
	if link == "" {
		t.Fatal("no network interface on a PCI bus is left")
	}
	Run(t, nil, "nsenter", "--net=/proc/1/ns/net", "ip", "link", "set", link, "netns", fmt.Sprint(os.Getpid()))
	if err := syscall.Mount("sys", "/sys", "sysfs", 0, ""); err != nil {
		t.Fatalf("mount /sys: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount("/sys", syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
		// Whatever its name and namespace are now: when the tests' namespaces end, the link returns to the initial one.
		_, _ = Try(nil, "ip", "link", "set", link, "down")
		_, _ = Try(nil, "ip", "link", "set", link, "netns", "1")
	})
	return address, link
}
