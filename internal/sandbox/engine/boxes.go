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

// boxTable is the sandboxes: the state directory, and what of it is in memory.
type boxTable struct {
	root string // the state directory

	mu   sync.Mutex
	byID map[string]*box
}

// path is one in the state directory.
func (bs *boxTable) path(elem ...string) string {
	return filepath.Join(append([]string{bs.root}, elem...)...)
}

// dir is a path in the directory of a sandbox.
func (bs *boxTable) dir(id string, elem ...string) string {
	return filepath.Join(append([]string{bs.root, "sandboxes", id}, elem...)...)
}

// load fills the memory from the state directory. A sandbox whose record cannot be read is none: Recover removes it.
func (bs *boxTable) load() error {
	entries, err := os.ReadDir(bs.path("sandboxes"))
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	for _, entry := range entries {
		var r Record
		if err := process.ReadJSON(bs.dir(entry.Name(), "config.json"), &r); err != nil || r.ID != entry.Name() {
			continue
		}
		b := &box{Record: r, containers: map[string]container.Spec{}}
		inner, _ := os.ReadDir(bs.dir(r.ID, "containers"))
		for _, c := range inner {
			st, err := container.Inspect(bs.dir(r.ID, "containers", c.Name()))
			if err != nil || st.ID != c.Name() {
				// Killed while it was made: nothing runs, for the spec comes first.
				_ = os.RemoveAll(bs.dir(r.ID, "containers", c.Name()))
				continue
			}
			b.containers[st.ID] = st.Spec
		}
		bs.byID[r.ID] = b
	}
	return nil
}

func (bs *boxTable) box(id string) (Record, error) {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	b, ok := bs.byID[id]
	if !ok {
		return Record{}, fmt.Errorf("sandbox %s: %w", id, ErrNotFound)
	}
	return b.Record, nil
}

// inspect looks at a sandbox. It is ready when its process lives and its network is ready.
func (bs *boxTable) inspect(r Record) Sandbox {
	s := Sandbox{Record: r, State: NotReady}
	var net readiness
	haveNet := process.ReadJSON(bs.dir(r.ID, "ready.json"), &net) == nil
	havePause := process.ReadJSON(bs.dir(r.ID, "pause.json"), &s.Pause) == nil
	if haveNet && havePause && process.Locked(bs.dir(r.ID, "lock")) && s.Pause.Alive() {
		s.State, s.Net = Ready, net.Result
	}
	return s
}

func (bs *boxTable) recordsOf(uid string) []Record {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	var out []Record
	for _, b := range bs.byID {
		if b.Config.UID == uid {
			out = append(out, b.Record)
		}
	}
	return out
}

func (bs *boxTable) containersIn(id string) []container.Status {
	bs.mu.Lock()
	var specs []container.Spec
	if b, ok := bs.byID[id]; ok {
		for _, s := range b.containers {
			specs = append(specs, s)
		}
	}
	bs.mu.Unlock()
	out := make([]container.Status, 0, len(specs))
	for _, s := range specs {
		out = append(out, container.Refresh(bs.dir(id, "containers", s.ID), s))
	}
	return out
}

func (bs *boxTable) ids() []string {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	out := make([]string, 0, len(bs.byID))
	for id := range bs.byID {
		out = append(out, id)
	}
	return out
}

func (bs *boxTable) forget(id string) {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	delete(bs.byID, id)
}
