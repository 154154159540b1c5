// SPDX-License-Identifier: Apache-2.0

package confdir

import (
	"context"
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

// Watcher keeps a snapshot of a configuration directory that is up to date.
type Watcher struct {
	dir  string
	bins []string
	v    Validator
	log  *slog.Logger
	now  atomic.Pointer[Snapshot]
	// Changed holds a token when the snapshot has changed since it was last taken.
	changed notify.Chan
}

// NewWatcher loads the directory once. bins are the directories of the plugins: what appears there can make a bad file
// good.
func NewWatcher(ctx context.Context, dir string, bins []string, v Validator, log *slog.Logger) *Watcher {
	w := &Watcher{dir: dir, bins: bins, v: v, log: log.With("room", "confdir"), changed: notify.New()}
	w.reload(ctx)
	return w
}

// Snapshot is the directory as it was last read.
func (w *Watcher) Snapshot() Snapshot { return *w.now.Load() }

// Changed holds a token when the snapshot is another than before.
func (w *Watcher) Changed() <-chan struct{} { return w.changed }

const (
	quiet = 30 * time.Millisecond // files are written in several steps
	// Networks that are not ready are asked again often; beside the file notifications everything is looked at now and
	// then.
	whenNotReady = time.Second
	whenReady    = 30 * time.Second
)

// Run follows the directories until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	n, err := fsnotify.NewWatcher()
	if err != nil {
		return err // the caller's descriptors are used up
	}
	defer func() { _ = n.Close() }()
	for {
		// A directory that did not exist, or was replaced, is added again; adding twice is no error.
		w.watchAll(n)
		period := whenReady
		if w.Snapshot().Problem != "" {
			period = whenNotReady
		}
		select {
		case <-ctx.Done():
			return nil
		case <-n.Errors: // lost events: look at everything
		case e := <-n.Events:
			if !w.concerns(e.Name) {
				continue
			}
			w.settle(ctx, n)
		case <-time.After(period):
		}
		w.reload(ctx)
	}
}

// watchAll watches the directories, and of each its nearest forebear that exists.
func (w *Watcher) watchAll(n *fsnotify.Watcher) {
	for _, dir := range append([]string{w.dir}, w.bins...) {
		for ; n.Add(dir) != nil && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
			if _, err := os.Stat(dir); err == nil {
				break
			}
		}
	}
}

// concerns reports whether a path lies in one of the directories, or on the way to one.
func (w *Watcher) concerns(path string) bool {
	for _, dir := range append([]string{w.dir}, w.bins...) {
		if path == dir || filepath.Dir(path) == dir || strings.HasPrefix(dir, path+"/") {
			return true
		}
	}
	return false
}

// settle swallows events until there are none for a moment.
func (w *Watcher) settle(ctx context.Context, n *fsnotify.Watcher) {
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
	w.tell(s)
	w.changed.Notify()
}

func (w *Watcher) tell(s Snapshot) {
	for _, f := range s.Files {
		if f.Error != "" {
			w.log.Warn("network configuration is skipped", "file", f.Path, "error", f.Error)
		}
		for _, warning := range f.Warnings {
			w.log.Warn("network configuration", "file", f.Path, "warning", warning)
		}
	}
	if s.Problem != "" {
		w.log.Warn("no pod can be attached", "why", s.Problem)
		return
	}
	w.log.Info("network is ready", "network", s.Default.Name, "loopback", s.Loopback.Name)
}
