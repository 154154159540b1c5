// SPDX-License-Identifier: Apache-2.0

package command

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// TestSize: the size of weft-agent, as built by make build, is limited.
func TestSize(t *testing.T) {
	nettest.EndToEnd(t)
	const most = 35_800_000
	file := filepath.Join(os.Getenv("WEFT_PROGRAMS"), "weft-agent")
	if os.Getenv("WEFT_PROGRAMS") == "" {
		file = filepath.Join(t.TempDir(), "weft-agent")
		cmd := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-tags", "grpcnotrace", "-ldflags", "-s -w", "-o",
			file, "../../../../cmd/weft-agent")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	st, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("weft-agent: %d bytes", st.Size())
	if st.Size() > most {
		t.Errorf(
			"weft-agent has %d bytes, at most %d are allowed: see what it links (go list -deps), and what keeps the linker from leaving methods out", st.Size(), most,
		)
	}
}
