// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// IncomingDeferred is the Config.Incoming of the target of Migrate.
const IncomingDeferred = "defer"

// Migrate migrates the VM in one directory to the one in another, which was started with IncomingDeferred. It returns
// the time at which the VM resumed on the target. After an error the VM continues on the source, unless it has ended.
//
// The state goes through a socket pair of this process: the two need no network connection and no file.
func Migrate(ctx context.Context, from, to string) (resumed time.Time, err error) {
	source, err := DialControl(ctx, from)
	if err != nil {
		return resumed, err
	}
	defer source.Close()
	target, err := DialControl(ctx, to)
	if err != nil {
		return resumed, err
	}
	defer target.Close()
	if err := startMigration(ctx, source, target); err != nil {
		return resumed, err
	}
	tick := time.NewTicker(migratePoll)
	defer tick.Stop()
	for {
		select {
		case e, ok := <-target.Events():
			if !ok {
				return resumed, errors.New("migration: the target has ended")
			}
			if e.Name == "RESUME" {
				return e.At, nil
			}
		case <-tick.C:
			if err := source.checkOutgoing(ctx); err != nil {
				return resumed, err
			}
		case <-ctx.Done():
			// The source resumes when the migration is canceled.
			cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
			defer cancel()
			_, _ = source.Command(cleanup, "migrate_cancel", nil)
			return resumed, fmt.Errorf("migration: %w", ctx.Err())
		}
	}
}

// migratePoll is the interval at which the source is asked whether the migration has failed.
const migratePoll = 200 * time.Millisecond

// stateName is the monitors' name for the descriptor of the state.
const stateName = "state"

// startMigration connects two VMs by a socket pair, and starts the migration.
func startMigration(ctx context.Context, source, target *Monitor) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("migration: %w", err)
	}
	in, out := os.NewFile(uintptr(pair[0]), stateName), os.NewFile(uintptr(pair[1]), stateName)
	defer func() { _, _ = in.Close(), out.Close() }()
	if _, err := target.command(ctx, "getfd", map[string]any{"fdname": stateName}, in); err != nil {
		return err
	}
	if _, err := source.command(ctx, "getfd", map[string]any{"fdname": stateName}, out); err != nil {
		return err
	}
	if _, err := target.Command(ctx, "migrate-incoming", map[string]any{"uri": "fd:" + stateName}); err != nil {
		return err
	}
	_, err = source.Command(ctx, "migrate", map[string]any{"uri": "fd:" + stateName})
	return err
}

// checkOutgoing returns an error if the migration from this VM has failed.
func (q *Monitor) checkOutgoing(ctx context.Context) error {
	b, err := q.Command(ctx, "query-migrate", nil)
	if err != nil {
		return err
	}
	var s struct {
		Status string `json:"status"`
		Why    string `json:"error-desc"`
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("monitor: query-migrate: %w", err)
	}
	if s.Status == "failed" || s.Status == "cancelled" {
		return fmt.Errorf("migration %s: %s", s.Status, s.Why)
	}
	return nil
}

// Quit ends the VM in a directory at once, with a regular end: the source of a completed migration.
func Quit(ctx context.Context, dir string) error {
	q, err := DialControl(ctx, dir)
	if err != nil {
		return err
	}
	defer q.Close()
	_, err = q.Command(ctx, "quit", nil)
	return err
}
