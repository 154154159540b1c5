// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/calico"
)

// unenforcedEvery is how often it is asked whether there are policies that weft does not enforce.
const unenforcedEvery = time.Hour

// warnUnenforced warns of Calico's own policies, which weft does not enforce, when they are others than before. They are written
// into the state directory for weft doctor.
func (a *agent) warnUnenforced(ctx context.Context) error {
	var was []string
	for {
		now, err := calico.Policies(ctx, a.store.Objects())
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			a.cfg.Log.Warn("cannot look for Calico's policies", "err", err)
		case !slices.Equal(was, now):
			if was = now; len(now) > 0 {
				a.cfg.Log.Warn("Calico's own policies are not enforced by weft; rewrite them as NetworkPolicy or ClusterNetworkPolicy", "policies", calico.Naming(now))
			}
		}
		if err == nil {
			if err := note(filepath.Join(a.cfg.StateDir, calico.PoliciesFile), now, len(now) == 0); err != nil {
				a.cfg.Log.Warn("Calico's policies are not noted", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-a.cfg.After(unenforcedEvery):
		}
	}
}

// note writes a value into a file for weft doctor; where there is nothing to say the file goes.
func note(path string, value any, nothing bool) error {
	if nothing {
		err := os.Remove(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	b, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, b, 0o600, atomicfile.CrashSafe)
}
