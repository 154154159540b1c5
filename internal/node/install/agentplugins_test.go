// SPDX-License-Identifier: Apache-2.0

package install

import (
	"os"
	"path/filepath"
	"testing"
)

// TestAgentPlugins: the names of plugins that the agent serves become links to weft-cni. A working program of such a
// name is never replaced, and Remove removes what Install has made.
func TestAgentPlugins(t *testing.T) {
	c := newDirs(t)
	c.ConfDir, c.Plugins, c.AgentPlugins, c.Replace = "", allPlugins(), []string{"calico", "whereabouts"}, true
	original := filepath.Join(c.BinDir, "whereabouts")
	if err := os.WriteFile(original, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		changes, err := Install(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		kept := false
		for _, done := range changes {
			kept = kept || done.Path == original && done.Action == Kept
		}
		if !kept {
			t.Errorf("nothing is said of the program that stays: %v", changes)
		}
		if target, err := os.Readlink(filepath.Join(c.BinDir, "calico")); err != nil || target != shimName {
			t.Errorf("calico is %q: %v", target, err)
		}
		if b, err := os.ReadFile(original); err != nil || string(b) != "#!/bin/sh\n" {
			t.Errorf("whereabouts is %q: %v", b, err)
		}
	}
	if _, err := Remove(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(c.BinDir, "calico")); err == nil {
		t.Error("calico is left")
	}
	if _, err := os.Lstat(original); err != nil {
		t.Errorf("whereabouts is gone: %v", err)
	}
}
