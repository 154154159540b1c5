// SPDX-License-Identifier: Apache-2.0

package confdir

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/weft-net/weft/internal/notify"
)

// Watcher maintains a current snapshot of a configuration directory.
type Watcher struct {
	dir  string
	bins []string
	v    Validator
	log  *slog.Logger
	now  atomic.Pointer[Snapshot]
	// notified when the snapshot has changed
	changed notify.Chan
}

// NewWatcher loads the directory once. bins are the directories of the plugins: a new plugin can make a file valid.
func NewWatcher(ctx context.Context, dir string, bins []string, v Validator, log *slog.Logger) *Watcher {
	w := &Watcher{dir: dir, bins: bins, v: v, log: log.With("component", "confdir"), changed: notify.New()}
	w.reload(ctx)
	return w
}

// Snapshot returns the last snapshot.
func (w *Watcher) Snapshot() Snapshot { return *w.now.Load() }

// Changed returns a channel that holds a token after the snapshot has changed.
func (w *Watcher) Changed() <-chan struct{} { return w.changed }

const (
	quiet = 30 * time.Millisecond // files are written in several steps
	// A network that is not ready is polled often. Besides the file notifications everything is reloaded periodically.
	whenNotReady = time.Second
	whenReady    = 30 * time.Second
)

// Run watches the directories until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	n, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("%s cannot be watched (the limit of inotify instances is the sysctl fs.inotify.max_user_instances): %w",
			w.dir, err)
	}
	defer func() { _ = n.Close() }()
	for {
		// A directory that did not exist, or was replaced, is added again; adding it twice is no error.
		w.watchAll(n)
		period := whenReady
		if w.Snapshot().Problem != "" {
			period = whenNotReady
		}
		select {
		case <-ctx.Done():
			return nil
		case <-n.Errors: // events were lost: reload everything
		case e := <-n.Events:
			if !w.concerns(e.Name) {
				continue
			}
			w.drain(ctx, n)
		case <-time.After(period):
		}
		w.reload(ctx)
	}
}

// watchAll watches the directories, or the nearest existing parent of each.
func (w *Watcher) watchAll(n *fsnotify.Watcher) {
	for _, dir := range append([]string{w.dir}, w.bins...) {
		for ; n.Add(dir) != nil && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
			if _, err := os.Stat(dir); err == nil {
				break
			}
		}
	}
}

// concerns reports whether a path is in one of the directories, or is a parent of one.
func (w *Watcher) concerns(path string) bool {
	for _, dir := range append([]string{w.dir}, w.bins...) {
		if path == dir || filepath.Dir(path) == dir || strings.HasPrefix(dir, path+"/") {
			return true
		}
	}
	return false
}

// drain discards events until there are none for a moment.
func (w *Watcher) drain(ctx context.Context, n *fsnotify.Watcher) {
	for range 100 {
		select {
		case <-ctx.Done():
			return
		case <-n.Events:
		case <-time.After(quiet):
			return
		}
	}
}

func (w *Watcher) reload(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	s := Load(ctx, w.dir, w.v)
	old := w.now.Swap(&s)
	if old != nil && reflect.DeepEqual(*old, s) {
		return
	}
	w.logSnapshot(s)
	w.changed.Notify()
}

func (w *Watcher) logSnapshot(s Snapshot) {
	for _, f := range s.Files {
		if f.Error != "" {
			w.log.Warn("network configuration is invalid; skipping it", "path", f.Path, "err", f.Error)
		}
		for _, warning := range f.Warnings {
			w.log.Warn("network configuration has a warning", "path", f.Path, "warning", warning)
		}
	}
	if s.Problem != "" {
		w.log.Warn("pods cannot be attached", "err", s.Problem)
		return
	}
	w.log.Info("network is ready", "network", s.Default.Name, "loopback", s.Loopback.Name)
}
