// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/weft-net/weft/internal/sandbox/container"
	"github.com/weft-net/weft/internal/sandbox/process"
)

// sandboxTable caches the sandboxes of the state directory in memory.
type sandboxTable struct {
	root string // the state directory

	mu   sync.Mutex
	byID map[string]*entry
}

// path returns a path in the state directory.
func (t *sandboxTable) path(elem ...string) string {
	return filepath.Join(append([]string{t.root}, elem...)...)
}

// dir returns a path in the directory of a sandbox.
func (t *sandboxTable) dir(id string, elem ...string) string {
	return filepath.Join(append([]string{t.root, "sandboxes", id}, elem...)...)
}

// load reads the state directory. It skips sandboxes whose record cannot be read; Recover removes them.
func (t *sandboxTable) load() error {
	dirs, err := os.ReadDir(t.path("sandboxes"))
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	for _, dir := range dirs {
		var r Record
		if err := process.ReadJSON(t.dir(dir.Name(), "config.json"), &r); err != nil || r.ID != dir.Name() {
			continue
		}
		b := &entry{Record: r, containers: map[string]container.Spec{}}
		inner, _ := os.ReadDir(t.dir(r.ID, "containers"))
		for _, c := range inner {
			st, err := container.Inspect(t.dir(r.ID, "containers", c.Name()))
			if err != nil || st.ID != c.Name() {
				// The runtime was killed while it created the container. The spec is written before anything starts.
				_ = os.RemoveAll(t.dir(r.ID, "containers", c.Name()))
				continue
			}
			b.containers[st.ID] = st.Spec
		}
		t.byID[r.ID] = b
	}
	return nil
}

func (t *sandboxTable) record(id string) (Record, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b, ok := t.byID[id]
	if !ok {
		return Record{}, fmt.Errorf("sandbox %s: %w", id, ErrNotFound)
	}
	return b.Record, nil
}

// inspect returns the current state of a sandbox. It is ready if its pause process runs and its network is ready.
func (t *sandboxTable) inspect(r Record) Sandbox {
	s := Sandbox{Record: r, State: NotReady}
	var net readiness
	haveNet := process.ReadJSON(t.dir(r.ID, "ready.json"), &net) == nil
	havePause := process.ReadJSON(t.dir(r.ID, "pause.json"), &s.Pause) == nil
	if haveNet && havePause && process.Locked(t.dir(r.ID, "lock")) && s.Pause.Alive() {
		s.State, s.Net = Ready, net.Result
	}
	return s
}

func (t *sandboxTable) recordsOf(uid string) []Record {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []Record
	for _, b := range t.byID {
		if b.Config.UID == uid {
			out = append(out, b.Record)
		}
	}
	return out
}

func (t *sandboxTable) containersIn(id string) []container.Status {
	t.mu.Lock()
	var specs []container.Spec
	if b, ok := t.byID[id]; ok {
		for _, s := range b.containers {
			specs = append(specs, s)
		}
	}
	t.mu.Unlock()
	out := make([]container.Status, 0, len(specs))
	for _, s := range specs {
		out = append(out, container.Refresh(t.dir(id, "containers", s.ID), s))
	}
	return out
}

func (t *sandboxTable) ids() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]string, 0, len(t.byID))
	for id := range t.byID {
		out = append(out, id)
	}
	return out
}

func (t *sandboxTable) forget(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byID, id)
}
