// SPDX-License-Identifier: Apache-2.0

package install

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/nettest"
)

func mount(t *testing.T, dir, options string) {
	t.Helper()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		nettest.SkipMissing(t, fmt.Sprintf("tmpfs cannot be mounted here: %v", err))
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

func TestBadDirectories(t *testing.T) {
	for name, x := range map[string]struct {
		spoil     func(c *Config)
		msg, hint string
	}{
		"missing bin": {func(c *Config) { c.BinDir = "/none" }, "directory /none does not exist", "bin_dir"},
		"no bin":      {func(c *Config) { c.BinDir = "/dev/null" }, "/dev/null is not a directory", "bin_dir"},
		"missing conf": {
			func(c *Config) { c.ConfDir = "/none" }, "directory /none does not exist", "conf_dir",
		},
		"no conf": {func(c *Config) { c.ConfDir = "/dev/null" }, "/dev/null is not a directory", "conf_dir"},
		"one directory": {
			func(c *Config) { c.ConfDir = c.BinDir + "/." }, "/. are the same directory", "one for configurations",
		},
		"no programs": {
			func(c *Config) { c.From = "/none" }, "/none/weft-cni is not a weft program", "--from",
		},
		"over itself": {
			func(c *Config) { c.BinDir = c.From }, "would be installed over itself", "--from",
		},
		"name": {func(c *Config) { c.Plugins = []string{"../sh"} }, `plugin "../sh" is not a file name`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := newDirs(t)
			bin, conf := c.BinDir, c.ConfDir
			before, confBefore := listing(t, bin), listing(t, conf)
			x.spoil(&c)
			_, err := Install(t.Context(), c)
			f := fault(t, err)
			if !strings.HasSuffix(f.Msg, x.msg) || !strings.Contains(f.Hint, x.hint) {
				t.Errorf("got %q, hint %q", f.Msg, f.Hint)
			}
			equal(t, "nothing was changed", before, listing(t, bin))
			equal(t, "nothing was changed", confBefore, listing(t, conf))
		})
	}
}

func TestReadOnly(t *testing.T) {
	c := newDirs(t)
	mount(t, c.BinDir, "size=64m")
	install(t, c)
	before := listing(t, c.BinDir)
	if err := unix.Mount("", c.BinDir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		nettest.SkipMissing(t, fmt.Sprintf("tmpfs cannot be remounted here: %v", err))
	}
	install(t, c) // nothing is to be done
	c.Plugins = []string{"ptp"}
	for verb, do := range map[string]func() error{
		"install": func() error { _, err := Install(t.Context(), c); return err },
		"remove":  func() error { _, err := Remove(t.Context(), c); return err },
	} {
		if f := fault(t, do()); !strings.Contains(f.Msg, "read-only file system") || !strings.Contains(f.Msg, c.BinDir) ||
			!strings.Contains(f.Hint, "writable") {
			t.Errorf("%s: %q, hint %q", verb, f.Msg, f.Hint)
		}
	}
	equal(t, "nothing was changed", before, listing(t, c.BinDir))
}

// TestFull: on a full disk no file is half-written, and the next run continues when there is space.
func TestFull(t *testing.T) {
	c := newDirs(t)
	c.ConfDir = ""
	for _, size := range []string{"0k", "512k", "3m"} {
		mount(t, c.BinDir, "size=4k")
		put(t, filepath.Join(c.BinDir, "ptp"), "theirs")
		c.Plugins, c.Replace = []string{"ptp"}, true
		if size != "0k" {
			if err := unix.Mount("", c.BinDir, "", unix.MS_REMOUNT, "size="+size); err != nil {
				nettest.SkipMissing(t, fmt.Sprintf("tmpfs cannot be remounted here: %v", err))
			}
		}
		_, err := Install(t.Context(), c)
		if f := fault(t, err); !strings.Contains(f.Msg, "no space left on device") ||
			!strings.Contains(f.Hint, "free some space") {
			t.Errorf("%s: %q, hint %q", size, f.Msg, f.Hint)
		}
		if left, _ := filepath.Glob(filepath.Join(c.BinDir, ".weft*")); len(left) > 0 {
			t.Errorf("%s: left %v", size, left)
		}
		if b, err := os.ReadFile(filepath.Join(c.BinDir, "ptp")); err != nil || string(b) != "theirs" {
			t.Errorf("%s: ptp is %q, %v", size, b, err)
		}
		if err := unix.Mount("", c.BinDir, "", unix.MS_REMOUNT, "size=64m"); err != nil {
			nettest.SkipMissing(t, fmt.Sprintf("tmpfs cannot be remounted here: %v", err))
		}
		install(t, c)
		remove(t, c)
		equal(t, "taken back", map[string]string{"ptp": "-rwxr-xr-x theirs"}, listing(t, c.BinDir))
	}
}

// TestWithoutLinks: on file systems without hard links a copy is kept.
func TestWithoutLinks(t *testing.T) {
	c := newDirs(t)
	p, err := open(t.Context(), c.BinDir, "")
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	before := listing(t, c.BinDir)
	for _, name := range []string{"bridge", "host-local"} {
		if err := p.duplicate(name, name+original); err != nil {
			t.Fatal(err)
		}
	}
	equal(t, "copies", with(before, map[string]string{
		"bridge" + original: before["bridge"], "host-local" + original: before["host-local"],
	}), listing(t, c.BinDir))
}
