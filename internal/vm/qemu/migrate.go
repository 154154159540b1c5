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

// Deferred is the Config.Incoming of a machine that Migrate brings its state.
const Deferred = "defer"

// Migrate has the machine in one directory go on in that of another, which was started with Deferred. It gives when the
// machine began to run there. After an error it runs where it was, unless that has ended.
//
// The two are joined by a pair of sockets of this process, so neither must reach the other and no file lies about.
func Migrate(ctx context.Context, from, to string) (resumed time.Time, err error) {
	source, err := Control(ctx, from)
	if err != nil {
		return resumed, err
	}
	defer source.Close()
	target, err := Control(ctx, to)
	if err != nil {
		return resumed, err
	}
	defer target.Close()
	if err := join(ctx, source, target); err != nil {
		return resumed, err
	}
	tick := time.NewTicker(migrating)
	defer tick.Stop()
	for {
		select {
		case e, ok := <-target.Events():
			if !ok {
				return resumed, errors.New("migration: the machine that awaits the state has ended")
			}
			if e.Name == "RESUME" {
				return e.At, nil
			}
		case <-tick.C:
			if err := source.outgoing(ctx); err != nil {
				return resumed, err
			}
		case <-ctx.Done():
			// The source goes on by itself when nobody takes its state any more.
			whatever, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
			defer cancel()
			_, _ = source.Command(whatever, "migrate_cancel", nil)
			return resumed, fmt.Errorf("migration: %w", ctx.Err())
		}
	}
}

// migrating is how often it is asked whether a migration has failed.
const migrating = 200 * time.Millisecond

// stateName is what the monitors call the descriptor that the state goes through.
const stateName = "state"

// join gives each of two machines an end of a pair of sockets, and has the state sent.
func join(ctx context.Context, source, target *Monitor) error {
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

// outgoing tells how the migration of a machine's state has failed.
func (q *Monitor) outgoing(ctx context.Context) error {
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
		return fmt.Errorf("migration: it has %s: %s", s.Status, s.Why)
	}
	return nil
}

// Quit ends the machine in a directory at once, as if it had ended by itself: what has migrated has nothing more to do
// where it was.
func Quit(ctx context.Context, dir string) error {
	q, err := Control(ctx, dir)
	if err != nil {
		return err
	}
	defer q.Close()
	_, err = q.Command(ctx, "quit", nil)
	return err
}
