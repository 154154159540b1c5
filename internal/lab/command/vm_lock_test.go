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

// TestClaim: of several concurrent claims of a VM one succeeds, and the others do not change anything.
func TestClaim(t *testing.T) {
	self, _ := process.Read(os.Getpid())
	dir := filepath.Join(t.TempDir(), "machines", "default,db")
	st := launch.Status{Namespace: "default", Name: "db", Phase: launch.Starting, Runner: self, Dir: dir}
	const claims = 8
	errs := make([]error, claims)
	var group sync.WaitGroup
	for i := range claims {
		group.Go(func() { errs[i] = claimVM(t.Context(), st) })
	}
	group.Wait()
	claimed, want := 0,
		fmt.Sprintf("VM default/db is Starting already (process %d) (stop it with `weft vm stop default/db`)",
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
		t.Errorf("%d claims succeeded", claimed)
	}
	if err := cleanUpVM(t.Context(), ui.Env{Stderr: t.Output()}, dir); err != nil {
		t.Error(err)
	}
	if _, found, err := launch.Read(dir); !found || err != nil {
		t.Errorf("the claim was removed: %v", err)
	}
}

// TestCleanUpVM: the directory of a killed process is removed, with or without a status file.
func TestCleanUpVM(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "default,db")
	dead := launch.Status{Namespace: "default", Name: "db", Phase: launch.Running, Dir: dir, Records: t.TempDir()}
	if err := launch.WriteStatus(dead); err != nil {
		t.Fatal(err)
	}
	if err := cleanUpVM(t.Context(), ui.Env{Stderr: t.Output()}, dir); err != nil {
		t.Error(err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := cleanUpVM(t.Context(), ui.Env{Stderr: t.Output()}, dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory was not removed: %v", err)
	}
}
