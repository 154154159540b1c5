// SPDX-License-Identifier: Apache-2.0

package install

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.MainWithPrograms(m)) }

// allPlugins are some of weft's plugins, two of which are another vendor's in the runtime's directory.
func allPlugins() []string { return []string{"bridge", "host-local", "loopback", "ptp"} }

const chain = `{"cniVersion":"0.4.0","name":"pods","plugins":[{"type":"bridge","ipam":{"type":"host-local","subnet":"10.1.0.0/24"}},` +
	`{"type":"portmap","capabilities":{"portMappings":true}}]}`

// newDirs returns a runtime's directories with a vendor's files.
func newDirs(t *testing.T) Config {
	t.Helper()
	c := Config{BinDir: t.TempDir(), ConfDir: t.TempDir(), From: nettest.Programs(t)}
	write := func(path, text string, mode fs.FileMode) {
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(c.BinDir, "bridge"), "#!/bin/sh\necho theirs\n", 0o700)
	write(filepath.Join(c.BinDir, "multi"), "#!/bin/sh\necho theirs too\n", 0o755)
	if err := os.Symlink("multi", filepath.Join(c.BinDir, "host-local")); err != nil {
		t.Fatal(err)
	}
	write(filepath.Join(c.ConfDir, "10-pods.conflist"), chain, 0o640)
	write(filepath.Join(c.ConfDir, "99-loopback.conf"), `{"cniVersion":"0.4.0","name":"lo","type":"loopback"}`, 0o644)
	return c
}

// listing returns the content of a directory: programs of weft's by name, everything else as it is.
func listing(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if target, err := os.Readlink(path); err == nil {
			out[e.Name()] = "-> " + target
			continue
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = fmt.Sprintf("%v %s", info.Mode(), b)
		for _, name := range []string{shimName, pluginName} {
			if equal, err := same(path, filepath.Join(nettest.Programs(t), name)); err == nil && equal {
				out[e.Name()] = fmt.Sprintf("%v the program %s", info.Mode(), name)
			}
		}
	}
	return out
}

func equal(t *testing.T, what string, want, got map[string]string) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, clip(d))
	}
}

func clip(s string) string { return s[:min(len(s), 4000)] }

// says formats changes as lines.
func says(c Config, changes []Change) string {
	var b strings.Builder
	for _, x := range changes {
		path := strings.NewReplacer(c.BinDir+"/", "", c.ConfDir+"/", "").Replace(x.Path)
		fmt.Fprintln(&b, strings.TrimSpace(x.Action+" "+path+" "+x.Detail))
	}
	return b.String()
}

func install(t *testing.T, c Config) string {
	t.Helper()
	changes, err := Install(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return says(c, changes)
}

func remove(t *testing.T, c Config) string {
	t.Helper()
	changes, err := Remove(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return says(c, changes)
}

// with returns a map with additional entries.
func with(m map[string]string, more map[string]string) map[string]string {
	out := maps.Clone(m)
	maps.Copy(out, more)
	return out
}
