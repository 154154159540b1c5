// SPDX-License-Identifier: Apache-2.0

package phase1

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/endpoint/ledger"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	plan "github.com/weft-net/weft/internal/plan/vm"
	"github.com/weft-net/weft/internal/state"
)

// capture writes each form of the record while f runs to testdata.
var capture = flag.Bool("capture", false,
	"write each form of a record of this version to testdata/stored, in addition to those of earlier versions")

const (
	storedDir   = "testdata/stored"
	storedNetns = "/run/netns/pod1"
	storedID    = "4026532300-77"
	storedRoot  = "/proc/4711/root"
)

// storedInput is the VM of the stored records. Every kernel supports it.
func storedInput() plan.Input {
	in := testInput(model.VMBridge, model.VMDirect)
	in.VM.Owner, in.StandIn, in.Join = 0, state.Bridge, state.JoinMirred
	return in
}

// storedWorld is a pod for the VM of the stored records, with a container that can have devices.
func storedWorld(t *testing.T) *world {
	w := newWorld(t)
	w.flannel()
	null := unix.Mkdev(1, 3)
	w.Vhost, w.Root = func() (uint64, bool) { return null, true }, t.TempDir()
	dev := filepath.Join(w.Root, "dev")
	if err := os.Mkdir(dev, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(filepath.Join(dev, "null"), unix.S_IFCHR|0o600, int(null)); err != nil {
		nettest.Skip(t, "no device can be created here: "+err.Error())
	}
	return w
}

var inode = regexp.MustCompile(`"dev":\d+,"ino":\d+`)

// names maps names of a world to those in the stored records.
func (w *world) names() map[string]string {
	w.t.Helper()
	id, err := Identity(w.pod)
	if err != nil {
		w.t.Fatal(err)
	}
	return map[string]string{w.pod.Path(): storedNetns, id: storedID, w.Root: storedRoot}
}

// file returns the record's file, which exists if there is no ledger.
func (w *world) file() string { return files{w.Dir}.path(attach.VMKey("shop/vm1", "pod1")) }

// capture writes down each form that the record takes while f runs.
func (w *world) capture(f func()) {
	w.t.Helper()
	path, last := w.file(), []byte(nil)
	observe := func() {
		w.t.Helper()
		b, err := os.ReadFile(path)
		if err != nil || bytes.Equal(b, last) {
			return // there is no record
		}
		last = b
		r, _, err := w.Read("shop/vm1", "pod1")
		if err != nil {
			w.t.Fatal(err)
		}
		text := string(b)
		for own, stored := range w.names() {
			text = strings.ReplaceAll(text, own, stored)
		}
		text = inode.ReplaceAllString(text, `"dev":1,"ino":2`)
		old, err := filepath.Glob(filepath.Join(storedDir, "*.json"))
		if err != nil {
			w.t.Fatal(err)
		}
		name := fmt.Sprintf("%02d-%s.json", len(old)+1, form(r))
		if err := os.WriteFile(filepath.Join(storedDir, name), []byte(text), 0o644); err != nil {
			w.t.Fatal(err)
		}
	}
	w.Step = func(string) error { observe(); return nil }
	f()
	observe()
	w.Step = nil
}

// form summarizes a record: the states of its networks, and whether vhost-net is granted.
func form(r Record) string {
	words := []string{"none"}
	if len(r.Networks) > 0 {
		words = nil
	}
	for _, n := range r.Networks {
		words = append(words, string(n.State))
	}
	if r.Vhost != nil {
		words = append(words, "device")
	}
	return strings.Join(words, "-")
}

// adopt runs Adopt as an agent that finds the file of an earlier version, and is killed once.
func (w *world) adopt() {
	w.t.Helper()
	if w.Records == nil {
		return
	}
	killed := errors.New("killed")
	w.Step = func(name string) error {
		if name == "adopted" {
			return killed
		}
		return nil
	}
	if err := w.Adopt(w.t.Context()); !errors.Is(err, killed) {
		w.t.Fatalf("it was not killed: %v", err)
	}
	w.Step = nil
	if _, err := os.Stat(w.file()); err != nil {
		w.t.Fatalf("the file was deleted before the record was stored: %v", err)
	}
	if err := w.Adopt(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	if left, err := os.ReadDir(w.Dir); err != nil || len(left) > 0 {
		w.t.Errorf("left on disk: %v (%v)", left, err)
	}
}

// load puts a stored record into a world's directory, and applies it to the pod.
func (w *world) load(file string) Record {
	w.t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		w.t.Fatal(err)
	}
	text := string(b)
	for own, stored := range w.names() {
		text = strings.ReplaceAll(text, stored, own)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(w.Root, "dev"), &st); err != nil {
		w.t.Fatal(err)
	}
	text = inode.ReplaceAllString(text, fmt.Sprintf(`"dev":%d,"ino":%d`, st.Dev, st.Ino))
	if err := os.MkdirAll(w.Dir, 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(w.file(), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.adopt()
	r, found, err := w.Read("shop/vm1", "")
	if err != nil || !found {
		w.t.Fatalf("found: %t, %v", found, err)
	}
	made := Record{Shared: r.Shared}
	for _, n := range r.Networks {
		if n.State != Pending {
			made.Networks = append(made.Networks, n)
		}
	}
	if len(made.Networks) > 0 {
		w.writes(func(s kernel.Spaces) error { return applyAll(w.t.Context(), s, made) })
	}
	return r
}

// TestStoredRecords: records of earlier versions, during a call or between two, can be started and undone; recovery
// keeps the finished networks and undoes the rest.
func TestStoredRecords(t *testing.T) {
	if *capture {
		w := storedWorld(t)
		if err := os.MkdirAll(storedDir, 0o755); err != nil {
			t.Fatal(err)
		}
		none := storedInput()
		for i := range none.VM.Interfaces {
			none.VM.Interfaces[i].Absent = true
		}
		w.capture(func() {
			w.start(storedInput())
			w.start(none)
		})
		w.undo()
	}
	stored, err := filepath.Glob(filepath.Join(storedDir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	t.Run("files", func(t *testing.T) { storedWorld(t).resumeAll(stored) })
	t.Run("ledger", func(t *testing.T) {
		l, err := ledger.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		w := storedWorld(t)
		w.Records = l.VMs()
		w.resumeAll(stored)
		if all, err := w.Records.List(); err != nil || len(all) > 0 {
			t.Errorf("left in the ledger: %v (%v)", all, err)
		}
	})
}

// resumeAll starts, undoes and recovers each of the stored records.
func (w *world) resumeAll(stored []string) {
	w.t.Helper()
	device := filepath.Join(w.Root, "dev", vhostName)
	before := w.dump()
	w.start(storedInput())
	after := w.dump()
	w.undo()
	gone := func(when string) {
		w.t.Helper()
		if d := cmp.Diff(before, w.dump()); d != "" {
			w.t.Errorf("%s (-before +after):\n%s", when, d)
		}
		if _, err := os.Lstat(device); !os.IsNotExist(err) {
			w.t.Errorf("%s: the device: %v", when, err)
		}
	}
	states := map[State]int{}
	all := w.t
	defer func() { w.t = all }()
	for _, file := range stored {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		all.Run(name, func(t *testing.T) {
			w.t = t
			r := w.load(file)
			if _, want, _ := strings.Cut(name, "-"); form(r) != want {
				t.Errorf("it is %s", form(r))
			}
			for _, n := range r.Networks {
				states[n.State]++
			}
			w.expectApplied(w.start(storedInput()))
			if d := cmp.Diff(after, w.dump()); d != "" {
				t.Errorf("started (-want +have):\n%s", d)
			}
			w.undo()
			gone("started and undone")

			w.load(file)
			w.undo()
			gone("undone")

			r = w.load(file)
			left, err := w.UndoSome(t.Context(), w.pod, "pod1", "shop/vm1",
				func(act attach.Act) bool { return act.State != Finished })
			if err != nil {
				t.Fatal(err)
			}
			want := slices.DeleteFunc(r.Networks, func(n Network) bool { return n.State != Finished })
			if !slices.EqualFunc(left.Networks, want, func(a, b Network) bool { return a.Interface.Name == b.Interface.Name }) {
				t.Errorf("left: %s of %s", form(left), name)
			}
			if len(left.Networks) > 0 {
				w.expectApplied(left)
			}
			w.undo()
			gone("recovered and undone")
		})
	}
	for _, s := range []State{Pending, Started, Finished, Leaving} {
		if states[s] == 0 {
			all.Errorf("no stored record has a network that is %s", s)
		}
	}
}
