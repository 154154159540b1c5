// SPDX-License-Identifier: Apache-2.0

package hostlocal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

func mount(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		nettest.Skip(t, fmt.Sprintf("tmpfs cannot be mounted here: %v", err))
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestFullDisk fills the file system: the ADD that does not fit fails, names the directory, and leaves nothing.
func TestFullDisk(t *testing.T) {
	dir := mount(t, "size=64k,nr_inodes=12")
	a := New(Config{DataDir: dir, CallerKnows: true})
	conf := section(`{"type":"host-local","ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00::/64"}]]}`)
	given := 0
	var err error
	for i := 0; err == nil && i < 100; i++ {
		if _, err = a.Add(context.Background(), req(conf, fmt.Sprint("c", i))); err == nil {
			given += 2
		}
	}
	if f := fault(t, err); f.Code != model.CodeIO || !strings.Contains(f.Msg, dir) || f.Hint == "" {
		t.Errorf("full: %+v", f)
	}
	if have := len(taken2(t, dir)); have != given || given == 0 {
		t.Errorf("%d files for %d addresses given", have, given)
	}
	if err := a.Del(context.Background(), req(conf, "c0")); err != nil {
		t.Errorf("DEL on a full file system: %v", err)
	}
}

func TestReadOnlyDisk(t *testing.T) {
	dir := mount(t, "size=64k")
	a := New(Config{DataDir: dir})
	conf := section(`{"type":"host-local","subnet":"10.1.0.0/24"}`)
	if _, err := a.Add(context.Background(), req(conf, "c1")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		nettest.Skip(t, fmt.Sprintf("tmpfs cannot be remounted here: %v", err))
	}
	for verb, err := range map[string]error{
		"ADD": func() error { _, err := a.Add(context.Background(), req(conf, "c2")); return err }(),
		"DEL": a.Del(context.Background(), req(conf, "c1")),
	} {
		if f := fault(t, err); f.Code != model.CodeIO || !strings.Contains(f.Msg, dir) ||
			!strings.Contains(f.Hint, "dataDir") {
			t.Errorf("%s: %+v", verb, f)
		}
	}
	other := req(conf, "")
	other.Network = "new" // its directory is yet to be made
	for _, q := range []ipam.Request{req(conf, ""), other} {
		if f := fault(t, a.Status(context.Background(), q)); f.Code != model.CodeNotAvailable ||
			!strings.Contains(f.Msg, dir) || f.Hint == "" {
			t.Errorf("STATUS of %s: %+v", q.Network, f)
		}
	}
}

// TestFileSystemsWithoutUnnamedFiles goes the other way of making a file complete before it appears.
func TestFileSystemsWithoutUnnamedFiles(t *testing.T) {
	a := New(Config{DataDir: t.TempDir()})
	d, err := a.open(context.Background(), filepath.Join(a.cfg.DataDir, "net"), true)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	r, err := d.newNamedOwnerFile("c1\r\neth0")
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.MustParseAddr("10.1.0.2")
	if err := r.claim(addr); err != nil {
		t.Fatal(err)
	}
	if err := r.claim(addr); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second claim: %v", err)
	}
	r.close()
	want := map[string]string{"10.1.0.2": "c1\r\neth0", "lock": ""}
	if got := tree(t, d.path); len(got) != 2 || got["10.1.0.2"] != want["10.1.0.2"] {
		t.Errorf("files %v, want %v", got, want)
	}
}

// TestWaitingForTheLockEnds gives up when the caller does.
func TestWaitingForTheLockEnds(t *testing.T) {
	dir := t.TempDir()
	conf := section(`{"type":"host-local","subnet":"10.1.0.0/24"}`)
	other := New(Config{DataDir: dir})
	d, err := other.open(context.Background(), filepath.Join(dir, "net"), true)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	for name, a := range map[string]*Allocator{"another process": New(Config{DataDir: dir}), "this process": other} {
		if _, err := a.Add(ctx, req(conf, "c1")); fault(t, err).Code != model.CodeTryAgain {
			t.Errorf("%s holds the lock: %v", name, err)
		}
	}
}
