// SPDX-License-Identifier: Apache-2.0

package phase1

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/vm/macvtap"
)

// TestVhost: the hypervisor's user is granted vhost-net in the hypervisor's container; undo restores the container.
func TestVhost(t *testing.T) {
	w := newWorld(t)
	w.flannel()
	null := unix.Mkdev(1, 3)
	w.Vhost = func() (uint64, bool) { return null, true }
	root := func(name string) string {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.MkdirAll(filepath.Join(dir, "dev"), 0o755); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	device := func(root string) (st unix.Stat_t, there bool) {
		err := unix.Lstat(filepath.Join(root, "dev", "vhost-net"), &st)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return st, err == nil
	}
	empty, full := root("empty"), root("full")
	if err := unix.Mknod(filepath.Join(full, "dev", "vhost-net"), unix.S_IFCHR|0o640, int(null)); err != nil {
		nettest.Skip(t, "no device can be created here: "+err.Error())
	}
	for _, w.Root = range []string{empty, full} {
		was, had := device(w.Root)
		for range 2 {
			w.start(testInput(model.VMMasquerade))
			if st, there := device(w.Root); !there || st.Uid != 107 || st.Gid != 107 || st.Rdev != null ||
				st.Mode&0o777 != 0o600 {
				t.Errorf("%s: %+v", w.Root, st)
			}
		}
		w.undo()
		if st, has := device(w.Root); has != had || st.Uid != was.Uid || st.Gid != was.Gid || st.Mode != was.Mode {
			t.Errorf("%s: before %+v, after %+v", w.Root, was, st)
		}
	}
	bad := root("bad")
	if err := os.Symlink("/dev/null", filepath.Join(bad, "dev", "vhost-net")); err != nil {
		t.Fatal(err)
	}
	before := w.dump()
	w.Root = bad
	_, err := w.Start(t.Context(), w.pod, "pod1", testInput(model.VMMasquerade))
	if err == nil ||
		!strings.HasSuffix(err.Error(), "/dev/vhost-net for user 107 in "+bad+": another file has that name") {
		t.Errorf("%v", err)
	}
	if after := w.dump(); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	w.Vhost = func() (uint64, bool) { return 0, false }
	w.start(testInput(model.VMMasquerade))
	w.undo()
}

// TestMacvtapDevice: the hypervisor's user is granted the device of a macvtap in the hypervisor's container, with its
// device number, until the network is removed.
func TestMacvtapDevice(t *testing.T) {
	nettest.Need(t, "macvtap")
	w := newWorld(t)
	w.flannel()
	w.Vhost = func() (uint64, bool) { return 0, false }
	w.Root = t.TempDir()
	dev := filepath.Join(w.Root, "dev")
	if err := os.Mkdir(dev, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(filepath.Join(dev, "null"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))); err != nil {
		nettest.Skip(t, "no device can be created here: "+err.Error())
	}
	w.ip(w.pod, "link del "+blueLink)
	w.ip(w.far, "link add lower type veth peer name upper")
	w.ip(w.far, "link set lower up")
	w.ip(w.far, "link add link lower name "+blueLink+" type macvtap mode bridge")
	w.ip(w.far, "link set "+blueLink+" netns "+w.pod.Path())
	w.ip(w.pod, "link set "+blueLink+" up")
	taps := func() []string {
		all, err := filepath.Glob(filepath.Join(dev, "tap*"))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	in := testInput(model.VMMasquerade, model.VMMacvtap)
	for range 2 {
		w.start(in)
		var tap macvtap.Device
		if err := w.pod.Do(func() error { tap, _ = macvtap.Find(blueLink); return nil }); err != nil {
			t.Fatal(err)
		}
		all := taps()
		if len(all) != 1 || filepath.Base(all[0]) != tap.Name {
			t.Fatalf("%v, want %s", all, tap.Name)
		}
		var st unix.Stat_t
		if err := unix.Lstat(all[0], &st); err != nil || st.Uid != in.VM.Owner || st.Gid != in.VM.Owner ||
			st.Rdev != tap.Number || st.Mode != unix.S_IFCHR|0o600 {
			t.Errorf("%+v (%v), want number %d", st, err, tap.Number)
		}
	}
	in.VM.Interfaces[1].Absent = true
	w.start(in)
	if all := taps(); len(all) > 0 {
		t.Errorf("unplugged: %v", all)
	}
	in.VM.Interfaces[1].Absent = false
	w.start(in)
	w.undo()
	if all := taps(); len(all) > 0 {
		t.Errorf("undone: %v", all)
	}
}
