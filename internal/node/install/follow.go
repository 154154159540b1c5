// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	quiet = 100 * time.Millisecond // wait for the end of a sequence of writes
	// Everything is also compared periodically, more often after an error.
	period, again = 30 * time.Second, time.Second
)

// Follow keeps the agent's conflist of the network up to date until ctx ends, and reports the first pass, and each one
// that changed something or failed. The conflist of a network that is removed is removed, too.
func Follow(ctx context.Context, c Config, report func([]Change, error)) error {
	n, err := fsnotify.NewWatcher()
	if err != nil {
		return withHint(err)
	}
	defer func() { _ = n.Close() }()
	last := ""
	for first := true; ; first = false {
		watchAll(n, c.ConfDir)
		changes, err := follow(ctx, c)
		if ctx.Err() != nil {
			return nil
		}
		if !first && len(changes) == 1 && changes[0].Action == Unchanged {
			changes = nil
		}
		changed := len(changes) > 0
		if now := text(err); now != last {
			changed, last = true, now
		}
		if changed {
			report(changes, err)
		}
		wait := period
		if err != nil {
			wait = again
		}
		select {
		case <-ctx.Done():
			return nil
		case <-n.Errors: // events were lost: compare everything
		case <-n.Events:
			settled(ctx, n)
		case <-time.After(wait):
		}
	}
}

// follow is one pass.
func follow(ctx context.Context, c Config) ([]Change, error) {
	conf, err := open(ctx, c.ConfDir, confHint)
	if err != nil {
		return nil, err
	}
	defer conf.close()
	changes, err := configure(conf, c)
	if errors.Is(err, errNoNetwork) {
		withdrawn, e := conf.withdraw("")
		if e != nil {
			return withdrawn, e
		}
		return withdrawn, err
	}
	return changes, err
}

// watchAll watches the directory and its network folders. Adding one twice is no error.
func watchAll(n *fsnotify.Watcher, dir string) {
	_ = n.Add(dir) // a missing one is an error of the pass, which is retried
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.IsDir() {
			_ = n.Add(filepath.Join(dir, e.Name()))
		}
	}
}

// settled waits until there were no events for a while.
func settled(ctx context.Context, n *fsnotify.Watcher) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.Events:
		case <-time.After(quiet):
			return
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
