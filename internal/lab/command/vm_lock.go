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

// claimVM records that this process runs a VM, unless another process does. An earlier check is not sufficient, because
// another process may have claimed the VM since.
func claimVM(ctx context.Context, st launch.Status) error {
	if err := os.MkdirAll(filepath.Dir(st.Dir), 0o700); err != nil {
		return model.Errorf(model.CodeIO, "run as root, or choose another directory with --dir", "VM %s: %w",
			st.Key(), err)
	}
	unlock, err := lockVMs(ctx, st.Dir)
	if err != nil {
		return err
	}
	defer func() { _ = unlock.Close() }()
	other, found, err := launch.Read(st.Dir)
	switch {
	case err != nil:
		return err
	case found:
		return alreadyRunning(other)
	}
	return launch.WriteStatus(st)
}

// lockVMs locks the directory of VMs, for adding and removing one.
func lockVMs(ctx context.Context, dir string) (*os.File, error) {
	return process.Lock(ctx, filepath.Join(filepath.Dir(dir), "lock"), 30*time.Second)
}

func alreadyRunning(st launch.Status) error {
	return model.Errorf(model.CodeExists, "stop it with `weft vm stop "+st.Key()+"`",
		"VM %s is %s already (process %d)", st.Key(), st.Phase, st.Runner.PID)
}

// cleanUpVM removes what a dead process may have left of a VM, unless another process runs it now.
func cleanUpVM(ctx context.Context, env ui.Env, dir string) error {
	st, found, err := launch.Read(dir)
	switch {
	case err != nil:
		return err
	case !found:
		return os.RemoveAll(dir)
	case st.Phase == launch.Dead:
		return removeDeadVM(context.WithoutCancel(ctx), env, st)
	}
	return nil
}
