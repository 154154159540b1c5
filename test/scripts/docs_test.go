// SPDX-License-Identifier: Apache-2.0

package scripts_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/nettest"
)

var update = flag.Bool("update", false, "write docs/images/lab.svg")

// documentsWithCommands lists the documents whose sh blocks are run. Those of docs/design and CONTRIBUTING are the
// tests, benchmarks and builds themselves.
func documentsWithCommands(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, dir := range []string{"start", "concepts", "tasks", "reference", "reference/plugins", "troubleshooting"} {
		pages, err := filepath.Glob("../../docs/" + dir + "/*.md")
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, pages...)
	}
	if len(out) < 50 {
		t.Fatalf("only %d documents found", len(out))
	}
	return append([]string{"../../README.md"}, out...)
}

// inTests is how a note says which test runs the commands that cannot be run here.
var inTests = regexp.MustCompile("\\bTest[A-Z]\\w+|`make [a-z0-9-]+`|`(?:test|internal)/[\\w/]+`")

// unbounded is a loop that may never end.
var unbounded = regexp.MustCompile(`(?m)^\s*(?:until|while)\b.*`)

// TestCommandsOfTheDocuments runs every block fenced as sh, in order, one shell per document. A block that cannot be
// run here (it needs a cluster, or the network) comes after a line "> **Note:** " that says what it requires, and which
// test runs the same.
func TestCommandsOfTheDocuments(t *testing.T) {
	ran := 0
	for _, path := range documentsWithCommands(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		doc := strings.TrimPrefix(path, "../../")
		commands, skipped := commandsOf(string(text))
		for _, why := range skipped {
			if !inTests.MatchString(why) {
				t.Errorf("%s: a block is not run, and its note names no test that runs it: %s", doc, why)
			}
		}
		if commands == "" {
			continue
		}
		ran++
		t.Run(doc, func(t *testing.T) {
			for _, why := range skipped {
				t.Logf("SKIP: a block of %s: %s", doc, why)
			}
			if m := unbounded.FindString(commands); m != "" {
				t.Errorf("%q waits without an end", m)
			}
			limit := 4 * time.Minute
			if bootsVM(commands) {
				limit = 8 * time.Minute
				needVM(t)
			}
			dir := runDocument(t, commands, limit)
			if doc == "README.md" && !t.Failed() {
				compareImage(t, filepath.Join(dir, "lab.svg"), "../../docs/images/lab.svg")
			}
		})
	}
	if ran < 25 && !t.Failed() {
		t.Errorf("only %d documents have commands", ran)
	}
}

// bootsVM reports whether the commands run a VM under QEMU.
func bootsVM(commands string) bool {
	return strings.Contains(commands, "weft vm run") || strings.Contains(commands, "examples/machines")
}

func needVM(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		nettest.SkipMissing(t, "there is no qemu-system-x86_64")
	}
	nettest.Need(t, "tap", "bridge")
	if out, err := exec.Command(filepath.Join(nettest.Programs(t), "weft"), "vm", "image").CombinedOutput(); err != nil {
		nettest.SkipMissing(t, string(out))
	}
}

// compareImage compares what the README's commands have drawn with the picture that it shows. Which of two pods of a
// node has the lower address depends on which of them started first.
func compareImage(t *testing.T, drawn, shown string) {
	t.Helper()
	read := func(name string) string {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if *update {
		if err := os.WriteFile(shown, []byte(read(drawn)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	order := regexp.MustCompile(`>(10\.42\.\d\.|fd42:0:0:\d::)\d<`)
	if d := cmp.Diff(order.ReplaceAllString(read(shown), ">$1<"), order.ReplaceAllString(read(drawn), ">$1<")); d != "" {
		t.Errorf("%s is not what the README's commands draw (-shown +drawn); write it with -update:\n%s", shown, d)
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
		case reason != "" && strings.HasPrefix(trimmed, "> "):
			reason += " " + strings.TrimPrefix(trimmed, "> ")
		case trimmed != "":
			reason = ""
		}
	}
	return out.String(), skipped
}

// runDocument runs commands where a reader would: in a checkout with built programs, on a host whose /run is its
// own. Only a document that exports PATH finds them by name. It returns the directory.
func runDocument(t *testing.T, commands string, limit time.Duration) string {
	t.Helper()
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
	const before = "mount -t tmpfs weft-docs /run\ntrap 'bin/weft lab down >/dev/null 2>&1; umount -l /run' EXIT\n"
	cmd := exec.Command("bash", "-euxo", "pipefail", "-c", before+commands)
	cmd.Dir = dir
	timer := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return dir
}
