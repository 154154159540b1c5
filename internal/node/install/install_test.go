// SPDX-License-Identifier: Apache-2.0

package install

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

// TestThereAndBack: Remove restores the directories to their state before Install.
func TestThereAndBack(t *testing.T) {
	const shim, plug = "-rwxr-xr-x the program weft-cni", "-rwxr-xr-x the program weft-plugin"
	for name, x := range map[string]struct {
		plugins         []string
		replace         bool
		more            map[string]string
		says, saysAfter string
	}{
		"the least": {
			nil, false,
			map[string]string{"weft-cni": shim, "weft-plugin": plug, "loopback": "-> weft-plugin"},
			"installed weft-plugin\ninstalled weft-cni\ninstalled loopback\n",
			"removed loopback\nremoved weft-cni\nremoved weft-plugin\n",
		},
		"plugins": {
			[]string{"ptp", "loopback", "ptp"},
			false,
			map[string]string{"weft-cni": shim, "weft-plugin": plug, "loopback": "-> weft-plugin", "ptp": "-> weft-plugin"},
			"installed weft-plugin\ninstalled weft-cni\ninstalled loopback\ninstalled ptp\n",
			"removed loopback\nremoved ptp\nremoved weft-cni\nremoved weft-plugin\n",
		},
		"in the place of others": {
			allPlugins(), true,
			map[string]string{
				"weft-cni": shim, "weft-plugin": plug, "loopback": "-> weft-plugin", "ptp": "-> weft-plugin",
				"bridge": "-> weft-plugin", "bridge.weft-original": "-rwx------ #!/bin/sh\necho theirs\n",
				"host-local": "-> weft-plugin", "host-local.weft-original": "-> multi",
			},
			"installed weft-plugin\ninstalled weft-cni\ninstalled bridge the previous one is kept as bridge.weft-original\n" +
				"installed host-local the previous one is kept as host-local.weft-original\ninstalled loopback\ninstalled ptp\n",
			"restored bridge\nrestored host-local\nremoved loopback\nremoved ptp\nremoved weft-cni\nremoved weft-plugin\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newDirs(t)
			c.Plugins, c.Replace, c.ConfDir = x.plugins, x.replace, ""
			before := listing(t, c.BinDir)
			if d := cmp.Diff(x.says, install(t, c)); d != "" {
				t.Errorf("what it says (-want +got):\n%s", d)
			}
			equal(t, "installed", with(before, x.more), listing(t, c.BinDir))
			again := install(t, c)
			if want := strings.Repeat("unchanged\n", strings.Count(again, "\n")); strings.NewReplacer(
				" weft-plugin", "", " weft-cni", "", " loopback", "", " bridge", "", " host-local", "", " ptp",
				"").Replace(again) != want {
				t.Errorf("a second time:\n%s", again)
			}
			equal(t, "a second time", with(before, x.more), listing(t, c.BinDir))
			if d := cmp.Diff(x.saysAfter, remove(t, c)); d != "" {
				t.Errorf("what it says when it takes back (-want +got):\n%s", d)
			}
			equal(t, "taken back", before, listing(t, c.BinDir))
			if again := remove(t, c); again != "" {
				t.Errorf("taken back twice: %s", again)
			}
			equal(t, "taken back twice", before, listing(t, c.BinDir))
		})
	}
}

// TestForeignIsRefused: without Replace, no program of another vendor is replaced, and nothing is changed.
func TestForeignIsRefused(t *testing.T) {
	c := newDirs(t)
	before, conf := listing(t, c.BinDir), listing(t, c.ConfDir)
	c.Plugins = allPlugins()
	_, err := Install(t.Context(), c)
	want := "directory " + c.BinDir + ": bridge, host-local: not weft's, and nothing was changed"
	if f := fault(t, err); f.Msg != want || !strings.Contains(f.Hint, "--replace-foreign") {
		t.Errorf("got %q, hint %q; want %q", f.Msg, f.Hint, want)
	}
	equal(t, "refused", before, listing(t, c.BinDir))
	equal(t, "refused", conf, listing(t, c.ConfDir))

	for _, name := range []string{"weft-cni", "weft-plugin"} {
		path := filepath.Join(c.BinDir, name)
		put(t, path, "somebody's program of that name")
		c.Plugins = nil
		if _, err := Install(t.Context(), c); !strings.Contains(fault(t, err).Msg, name+": not weft's") {
			t.Errorf("foreign %s: %v", name, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	put(t, filepath.Join(c.BinDir, "loopback"), "theirs")
	if said := install(t, c); !strings.Contains(said, "kept loopback another vendor's\n") ||
		strings.Contains(said, "weft-plugin") {
		t.Errorf("foreign loopback:\n%s", said)
	}
	if err := os.Mkdir(filepath.Join(c.BinDir, "ptp"), 0o755); err != nil {
		t.Fatal(err)
	}
	c.Plugins, c.Replace = []string{"ptp"}, true
	if _, err := Install(t.Context(), c); fault(t, err).Msg != filepath.Join(c.BinDir, "ptp")+" is a directory" {
		t.Errorf("a directory of that name: %v", err)
	}
}

// TestVendorComesBack: a program that another vendor has installed over weft's is kept.
func TestVendorComesBack(t *testing.T) {
	c := newDirs(t)
	c.Plugins, c.Replace = allPlugins(), true
	install(t, c)
	bridge := filepath.Join(c.BinDir, "bridge")
	if err := os.Remove(bridge); err != nil {
		t.Fatal(err)
	}
	put(t, bridge, "newer")
	said := remove(t, c)
	if !strings.Contains(said, "kept bridge.weft-original another program has replaced bridge since\n") ||
		strings.Contains(said, "d bridge\n") {
		t.Errorf("taken back:\n%s", said)
	}
	if b, err := os.ReadFile(bridge); err != nil || string(b) != "newer" {
		t.Errorf("the newer bridge: %q, %v", b, err)
	}
	install(t, c) // the newer one becomes the original
	if b, err := os.ReadFile(bridge + original); err != nil || string(b) != "newer" {
		t.Errorf("the original: %q, %v", b, err)
	}
	remove(t, c)
	if b, err := os.ReadFile(bridge); err != nil || string(b) != "newer" {
		t.Errorf("the newer bridge: %q, %v", b, err)
	}
}

// TestUpgrade: programs of other versions of weft are recognized.
func TestUpgrade(t *testing.T) {
	c := newDirs(t)
	install(t, c)
	path := filepath.Join(c.BinDir, shimName)
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString("another version")
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	if said := install(t, c); !strings.Contains(said, "installed weft-cni\n") {
		t.Errorf("upgrade:\n%s", said)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if said := install(t, c); !strings.Contains(said, "installed weft-cni\n") {
		t.Errorf("not executable:\n%s", said)
	}
}

// TestRunningProgram: a running program can be replaced: the runtime's next call uses the new one.
func TestRunningProgram(t *testing.T) {
	c := newDirs(t)
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		nettest.SkipMissing(t, "no sleep")
	}
	b, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(c.BinDir, "ptp")
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	c.Plugins, c.Replace = []string{"ptp"}, true
	install(t, c)
	if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the running program: %v", err)
	}
	remove(t, c)
	if got, err := os.ReadFile(path); err != nil || len(got) != len(b) {
		t.Errorf("restored: %d bytes, %v", len(got), err)
	}
}

// TestMany: concurrent runs wait for each other.
func TestMany(t *testing.T) {
	c := newDirs(t)
	c.Plugins, c.Replace = allPlugins(), true
	before := listing(t, c.BinDir)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			verb := Install
			if i%2 == 1 {
				verb = Remove
			}
			if _, err := verb(t.Context(), c); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	install(t, c)
	remove(t, c)
	equal(t, "in the end", before, listing(t, c.BinDir))
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func fault(t *testing.T, err error) *model.Error {
	t.Helper()
	var f *model.Error
	if !errors.As(err, &f) {
		t.Fatalf("%v (%T) is no fault", err, err)
	}
	return f
}
