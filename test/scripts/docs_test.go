// SPDX-License-Identifier: Apache-2.0

package scripts_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
)

// The commands of the documents are run: every block fenced as sh, in order, one shell per document. A block that
// cannot be run here (it needs the network, or a cluster) stands below a line "> **Note:** " that says what it needs or
// does.
func TestCommandsOfTheDocuments(t *testing.T) {
	for _, doc := range []string{
		"README.md", "docs/direct.md", "docs/lab.md", "docs/routed.md", "docs/sandbox.md", "docs/vm.md",
	} {
		t.Run(doc, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("../..", doc))
			if err != nil {
				t.Fatal(err)
			}
			commands, skipped := commandsOf(string(text))
			if commands == "" {
				t.Fatal("no commands found")
			}
			for _, why := range skipped {
				t.Logf("SKIP: a block of %s: %s", doc, why)
			}
			runDocument(t, commands)
		})
	}
}

// commandsOf takes the sh blocks out of a document, and the reasons of those that are not run.
func commandsOf(text string) (commands string, skipped []string) {
	var out strings.Builder
	inside, reason := false, ""
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		switch {
		case inside && trimmed == "```":
			inside, reason = false, ""
		case inside && reason == "":
			out.WriteString(line)
		case inside:
		case trimmed == "```sh":
			if inside = true; reason != "" {
				skipped = append(skipped, reason)
			}
		case strings.HasPrefix(trimmed, "> **Note:** "):
			reason = strings.TrimPrefix(trimmed, "> **Note:** ")
		case trimmed != "":
			reason = ""
		}
	}
	return out.String(), skipped
}

// runDocument runs commands where a reader would: in a checkout with built programs, on a machine whose /run is its
// own.
func runDocument(t *testing.T, commands string) {
	dir := t.TempDir()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{
		"examples": root + "/examples", "bin": nettest.Programs(t), "test": root + "/test",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	const before = "mount -t tmpfs weft-docs /run\ntrap 'weft lab down >/dev/null 2>&1; umount -l /run' EXIT\n"
	cmd := exec.Command("bash", "-euxo", "pipefail", "-c", before+commands)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+nettest.Programs(t)+":"+os.Getenv("PATH"))
	timer := time.AfterFunc(3*time.Minute, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
