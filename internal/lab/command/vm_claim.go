// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/sandbox/process"
	"github.com/weft-net/weft/internal/vm/launch"
)

// claimMachine writes down that a machine is this process's, where it is nobody else's: two calls may have found it
// free, one of them a minute ago.
func claimMachine(ctx context.Context, st launch.Status) error {
	if err := os.MkdirAll(filepath.Dir(st.Dir), 0o700); err != nil {
		return model.Faultf(model.CodeIO, "run as root, or choose another directory with --dir", "machine %s: %w",
			st.Key(), err)
	}
	unlock, err := lockMachines(ctx, st.Dir)
	if err != nil {
		return err
	}
	defer func() { _ = unlock.Close() }()
	other, found, err := launch.Read(st.Dir)
	switch {
	case err != nil:
		return err
	case found:
		return runsAlready(other)
	}
	return launch.Note(st)
}

// lockMachines waits for the turn to begin or to take away a machine.
func lockMachines(ctx context.Context, dir string) (*os.File, error) {
	return process.Lock(ctx, filepath.Join(filepath.Dir(dir), "lock"), 30*time.Second)
}

func runsAlready(st launch.Status) error {
	return model.Faultf(model.CodeExists, "stop it with `weft vm stop "+st.Key()+"`",
		"machine %s is %s already (process %d)", st.Key(), st.Phase, st.Runner.PID)
}

// abandon takes away what a process that has ended may have left of a machine. One that another process has begun
// meanwhile stays.
func abandon(ctx context.Context, env ui.Env, dir string) error {
	st, found, err := launch.Read(dir)
	switch {
	case err != nil:
		return err
	case !found:
		return os.RemoveAll(dir)
	case st.Phase == launch.Dead:
		return vmTidy(context.WithoutCancel(ctx), env, st)
	}
	return nil
}
