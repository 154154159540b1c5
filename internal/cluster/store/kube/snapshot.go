// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/cluster/store"
)

// snapshotVersion is that of the files' form. One of another version is not read.
const snapshotVersion = 1

// savePause collects the changes of a burst. An agent that is killed within it, while the server is away, does not know
// the pods of that moment.
const savePause = 100 * time.Millisecond

// snapshot is a shelf as a file. It holds facts only: no token was ever in it.
type snapshot struct {
	Version int               `json:"version"`
	Node    string            `json:"node"`
	Objects []json.RawMessage `json:"objects"`
}

func (s *Store) snapshotFile(kind store.Kind) string {
	return filepath.Join(s.cfg.Dir, kind.Resource+".json")
}

// restore fills a shelf from the snapshot. One that cannot be used is as none.
func (s *Store) restore(sh *shelf) {
	if s.cfg.Dir == "" {
		return
	}
	b, err := os.ReadFile(s.snapshotFile(sh.kind))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var snap snapshot
	if err == nil {
		err = json.Unmarshal(b, &snap)
	}
	switch {
	case err != nil:
		s.log.Warn("snapshot is not used", "err", err)
		return
	case snap.Version != snapshotVersion || snap.Node != s.cfg.Node:
		s.log.Warn("snapshot is not used", "version", snap.Version, "node", snap.Node)
		return
	}
	for _, raw := range snap.Objects {
		o, err := store.NewObject(raw)
		if err == nil {
			sh.objects[o.Key] = o
		}
	}
	sh.restored = true
}

// unsaved says that the snapshot may be old.
func (s *Store) unsaved() {
	s.saving.Notify()
}

// save keeps the snapshot until ctx ends, and once more then.
func (s *Store) save(ctx context.Context) error {
	if s.cfg.Dir == "" {
		return nil
	}
	if err := os.MkdirAll(s.cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	said := ""
	for {
		err := s.saveAll()
		if err != nil && err.Error() != said {
			said = err.Error()
			s.log.Error("snapshot cannot be written", "err", err)
		}
		again := s.saving
		var retry <-chan time.Time
		if err != nil {
			retry = s.cfg.After(time.Second)
		}
		select {
		case <-again:
			select {
			case <-s.cfg.After(savePause):
			case <-ctx.Done():
			}
		case <-retry:
		case <-ctx.Done():
			return s.saveAll()
		}
	}
}

func (s *Store) saveAll() error {
	errs := []error{s.notes.save()}
	for _, kind := range s.factKinds() {
		sh := s.shelf(kind)
		all, due := sh.unsaved()
		if !due {
			continue
		}
		if err := s.write(kind, all); err != nil {
			sh.again()
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// write puts a complete file in place.
func (s *Store) write(kind store.Kind, all []store.Object) error {
	var b bytes.Buffer
	snap := snapshot{Version: snapshotVersion, Node: s.cfg.Node, Objects: make([]json.RawMessage, 0, len(all))}
	for _, o := range all {
		snap.Objects = append(snap.Objects, o.Raw)
	}
	if err := json.NewEncoder(&b).Encode(snap); err != nil {
		return fmt.Errorf("snapshot of %s: %w", kind.Resource, err)
	}
	if err := atomicfile.Write(s.snapshotFile(kind), b.Bytes(), 0o600, atomicfile.CrashSafe); err != nil {
		return fmt.Errorf("snapshot of %s: %w", kind.Resource, err)
	}
	return nil
}
