// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/weft-net/weft/internal/cniserver"
	"github.com/weft-net/weft/internal/model"
)

// claim makes the state directory this agent's own.
func (a *agent) claim() error {
	dir := a.cfg.StateDir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return model.Faultf(model.CodeIO, "choose a --state-dir that can be written", "state directory %q: %w", dir, err)
	}
	lock, err := cniserver.Lock(filepath.Join(dir, "agent.lock"))
	switch {
	case errors.Is(err, cniserver.ErrLocked):
		return model.Faultf(model.CodeExists, "stop the other agent or choose another --state-dir",
			"state directory %q: another agent uses it", dir)
	case err != nil:
		return model.Faultf(model.CodeIO, "choose a --state-dir that can be written", "state directory %q: %w", dir, err)
	}
	a.lock = lock
	return nil
}
