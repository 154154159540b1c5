// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/weft-net/weft/internal/sandbox/process"
)

// Progress is told what a long command is doing, one line at a time.
type Progress func(format string, args ...any)

// Down takes the lab in d away, whatever state it is in: processes, mounts, namespaces and files. No lab is no error.
func (d Dir) Down(ctx context.Context, say Progress) error {
	_, err := os.Stat(string(d))
	if errors.Is(err, os.ErrNotExist) {
		say("no lab in %s, nothing to take down", d)
		return nil
	}
	if err != nil {
		return fmt.Errorf("state directory %s: %w", d, plain(err))
	}
	if err := d.foreign(); err != nil {
		return err
	}
	// Of an up that was killed at its very beginning an empty directory is left. Remove takes no other.
	if os.Remove(string(d)) == nil {
		say("no lab in %s, nothing to take down but the empty directory", d)
		return nil
	}
	unlock, err := d.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	m, err := d.read()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	say("taking down lab %s in %s", m.Layout.Spec.Name, d)
	return d.takeDown(ctx)
}

// takeDown removes everything; the caller holds the lock. Each step finds what is there by looking, not by remembering.
func (d Dir) takeDown(ctx context.Context) error {
	namespaces, err := d.namespacesBelow()
	if err != nil {
		return fmt.Errorf("namespaces of the lab: %w", err)
	}
	err = killAll(ctx, func() ([]process.ID, error) { return inhabitants(namespaces, string(d)) })
	if err != nil {
		return err
	}
	if err := unmountAll(string(d)); err != nil {
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

// undone takes down what a failed up has made; it has its own deadline, for up may have failed because it was told to
// stop.
func (d Dir) undone(ctx context.Context, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if err := d.takeDown(ctx); err != nil {
		return errors.Join(cause, fmt.Errorf("take down what was made: %w", err))
	}
	return cause
}
