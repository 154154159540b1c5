// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/sandbox/process"
	"github.com/weft-net/weft/internal/vm/launch"
)

// TestClaim: of two that begin the same machine at once one has it, and the other leaves it alone.
func TestClaim(t *testing.T) {
	self, _ := process.Read(os.Getpid())
	dir := filepath.Join(t.TempDir(), "machines", "default,db")
	st := launch.Status{Namespace: "default", Name: "db", Phase: launch.Starting, Runner: self, Dir: dir}
	const callers = 8
	errs := make([]error, callers)
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() { errs[i] = claimMachine(t.Context(), st) })
	}
	group.Wait()
	claimed, want := 0,
		fmt.Sprintf("machine default/db is Starting already (process %d) (stop it with `weft vm stop default/db`)",
			os.Getpid())
	for _, err := range errs {
		switch {
		case err == nil:
			claimed++
		case err.Error() != want:
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if claimed != 1 {
		t.Errorf("%d have it", claimed)
	}
	if err := abandon(t.Context(), ui.Env{Stderr: t.Output()}, dir); err != nil {
		t.Error(err)
	}
	if _, found, err := launch.Read(dir); !found || err != nil {
		t.Errorf("who has it does not: %v", err)
	}
}

// TestAbandon: what a process has left that was killed is taken away, whether or not it came to say what it is.
func TestAbandon(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "default,db")
	dead := launch.Status{Namespace: "default", Name: "db", Phase: launch.Running, Dir: dir, Records: t.TempDir()}
	if err := launch.Note(dead); err != nil {
		t.Fatal(err)
	}
	if err := abandon(t.Context(), ui.Env{Stderr: t.Output()}, dir); err != nil {
		t.Error(err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := abandon(t.Context(), ui.Env{Stderr: t.Output()}, dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("it is there: %v", err)
	}
}
