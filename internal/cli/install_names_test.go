// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/spf13/cobra"
)

// TestInstallNames checks that plugins that need the agent are links to weft-cni, which calls it, not to weft-plugin.
func TestInstallNames(t *testing.T) {
	var f installFlags
	cmd := &cobra.Command{}
	for _, name := range []string{"cni-bin-dir", "conf-dir", "from", "socket"} {
		cmd.Flags().String(name, "", "")
	}
	f.cfg.BinDir, f.cfg.From, f.plugins = t.TempDir(), t.TempDir(), true
	if err := f.check(cmd, Env{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"calico", "calico-ipam", "weft", "whereabouts"} {
		if slices.Contains(f.cfg.Plugins, name) {
			t.Errorf("%s is linked to weft-plugin, which cannot run it", name)
		}
		if !slices.Contains(f.cfg.AgentPlugins, name) {
			t.Errorf("%s is not linked", name)
		}
	}
	for _, name := range []string{"bridge", "host-local", "portmap"} {
		if !slices.Contains(f.cfg.Plugins, name) {
			t.Errorf("%s is not linked", name)
		}
	}
}

// TestDefaultKubeconfig checks that ~/.kube/config is used if neither a flag nor the environment names an API server.
func TestDefaultKubeconfig(t *testing.T) {
	home := t.TempDir()
	run := func() string {
		var out, errs bytes.Buffer
		Run(t.Context(), Env{Args: []string{"ipam", "show"}, Stdout: &out, Stderr: &errs, Getenv: func(name string) string {
			if name == "HOME" {
				return home
			}
			return ""
		}})
		return errs.String()
	}
	if got := run(); !bytes.Contains([]byte(got), []byte("no datastore is named")) {
		t.Errorf("without the file: %s", got)
	}
	if err := os.Mkdir(filepath.Join(home, ".kube"), 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(home, ".kube", "config")
	if err := os.WriteFile(path, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := run(); !bytes.Contains([]byte(got), []byte(path)) {
		t.Errorf("the file is not read: %s", got)
	}
}
