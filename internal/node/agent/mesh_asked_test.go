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

// TestMeshAsked: weft mesh shows the running agent's state, and the status file if no agent runs.
func TestMeshAsked(t *testing.T) {
	nettest.EndToEnd(t)
	p := newTwo(t, "design: bridge")
	w := p.nodes[0]
	file := filepath.Join(w.path("state"), "mesh.json")
	shows := func() (string, error) {
		cmd := exec.Command(filepath.Join(os.Getenv(binVar), "weft"), "mesh", "--state-dir", w.path("state"))
		var out []byte
		err := w.node.Do(func() (err error) { out, err = cmd.CombinedOutput(); return err })
		return string(out), err
	}
	p.until("the file names the peer", func() bool {
		b, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(b), `"mesh/peer/n2"`)
	})
	kept, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if out, err := shows(); err != nil || !strings.Contains(out, "peer n2") {
		t.Errorf("without the file: %v\n%s", err, out)
	}
	w.kill()
	_ = os.Remove(file) // a pass may have written it meanwhile
	if out, err := shows(); err == nil {
		t.Errorf("with neither: %s", out)
	}
	if err := os.WriteFile(file, kept, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := shows(); err != nil || !strings.Contains(out, "peer n2") {
		t.Errorf("without the agent: %v\n%s", err, out)
	}
}
