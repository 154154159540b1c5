// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/weft-net/weft/internal/lab/teardown"
	"github.com/weft-net/weft/internal/sandbox/process"
)

// Progress reports the progress of a long command, one line at a time.
type Progress func(format string, args ...any)

// Down removes the lab in d, in whatever state it is, if it exists: processes, mounts, namespaces and files.
func (d Dir) Down(ctx context.Context, logf Progress) error {
	_, err := os.Stat(string(d))
	if errors.Is(err, os.ErrNotExist) {
		logf("no lab in %s, nothing to take down", d)
		return nil
	}
	if err != nil {
		return fmt.Errorf("state directory %s: %w", d, withoutPath(err))
	}
	if err := d.checkForeign(); err != nil {
		return d.unlessGone(err, logf)
	}
	// An up that was killed right after its start leaves an empty directory. Remove fails for any other.
	if os.Remove(string(d)) == nil {
		logf("no lab in %s, nothing to take down but the empty directory", d)
		return nil
	}
	unlock, err := d.lock(ctx)
	if err != nil {
		return d.unlessGone(err, logf)
	}
	defer unlock()
	m, err := d.read()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	logf("taking down lab %s in %s", m.Layout.Spec.Name, d)
	return d.takeDownLocked(ctx)
}

// unlessGone returns the error, or nil if the directory does not exist any more: another command has taken down the lab.
func (d Dir) unlessGone(err error, logf Progress) error {
	if _, gone := os.Stat(string(d)); errors.Is(gone, os.ErrNotExist) {
		logf("another weft command has taken down the lab in %s", d)
		return nil
	}
	return err
}

// takeDownLocked removes everything. Each step finds by itself what exists, independent of the layout.
func (d Dir) takeDownLocked(ctx context.Context) error {
	namespaces, err := teardown.Namespaces(string(d))
	if err != nil {
		return fmt.Errorf("namespaces of the lab: %w", err)
	}
	err = teardown.Kill(ctx, func() ([]process.ID, error) { return teardown.Processes(namespaces, teardown.Lab(string(d))) })
	if err != nil {
		return err
	}
	if err := teardown.Unmount(string(d)); err != nil {
		return err
	}
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != markerName && e.Name() != lockName {
			if err := os.RemoveAll(d.at(e.Name())); err != nil {
				return fmt.Errorf("files of the lab: %w", err)
			}
		}
	}
	for _, name := range []string{markerName, lockName, ""} {
		if err := os.Remove(d.at(name)); err != nil && !errors.Is(err, os.ErrNotExist) && name != "" {
			return fmt.Errorf("files of the lab: %w", err)
		}
	}
	return nil
}

// rollback removes what a failed up has created. It has its own deadline, because up may have failed by cancellation.
func (d Dir) rollback(ctx context.Context, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if err := d.takeDownLocked(ctx); err != nil {
		return errors.Join(cause, fmt.Errorf("rollback: %w", err))
	}
	return cause
}
