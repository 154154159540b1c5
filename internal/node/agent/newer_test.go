// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// TestNewerStateIsRefused: an agent that a roll back has started on the state of a version whose files it cannot read
// says so, and changes neither the files nor the kernel.
func TestNewerStateIsRefused(t *testing.T) {
	nettest.EndToEnd(t)
	w := newWorld(t)
	w.start()
	w.stop()
	path := w.path("state", "format.json")
	b, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(b), `"ledger.db": 1`) {
		t.Fatalf("%s: %v\n%s", path, err, b)
	}
	b = []byte(strings.Replace(string(b), `"ledger.db": 1`, `"ledger.db": 9`, 1))
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	all := func() string {
		files, err := exec.Command("find", w.path("state"), w.path("run"), "-printf", "%p %s %T@ %l\n").Output()
		if err != nil {
			t.Fatal(err)
		}
		return w.host() + string(files)
	}
	before := all()
	cmd := exec.Command(filepath.Join(os.Getenv(binVar), "weft-agent"), "agent", "--node", "n1", "--socket", w.socket(),
		"--state-dir", w.path("state"))
	var out []byte
	err = w.node.Do(func() (err error) { out, err = cmd.CombinedOutput(); return err })
	for _, part := range []string{w.path("state"), "ledger.db has format 9, this program knows 1", "drain the node"} {
		if !strings.Contains(string(out), part) {
			t.Errorf("the message lacks %q", part)
		}
	}
	if err == nil || t.Failed() {
		t.Errorf("the agent ended with %v and said\n%s", err, out)
	}
	if after := all(); after != before {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
}
