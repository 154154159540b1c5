// SPDX-License-Identifier: Apache-2.0

// Package unenforced warns about policies that are not enforced: those parts of Calico's that it does not understand, and all policies for pods that another
// vendor's network attached before weft was installed.
package unenforced

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/calico"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/node/doctorfile"
)

// period is how often the agent checks for policies that weft does not enforce.
const period = time.Hour

// Watch logs which of Calico's own policies are not enforced when that has changed, and writes them to the state directory
// for weft doctor.
func Watch(
	ctx context.Context, objects store.Objects, stateDir string, log *slog.Logger,
	after func(time.Duration) <-chan time.Time,
) error {
	var was []string
	for {
		now, err := calico.Unenforced(ctx, objects)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			log.Warn("Calico's policies could not be listed", "err", err)
		case !slices.Equal(was, now):
			if was = now; len(now) > 0 {
				log.Warn("objects of Calico are not enforced, or only in part; rewrite them, or delete them",
					"objects", calico.Summary(now))
			}
		}
		if err == nil {
			if err := doctorfile.Write(filepath.Join(stateDir, calico.PoliciesFile), append([]string{}, now...),
				false); err != nil {
				log.Warn("agent could not write the list of Calico's policies for weft doctor", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-after(period):
		}
	}
}
