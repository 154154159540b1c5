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

// snapshotVersion is the version of the files' format. A file of another version is not read.
const snapshotVersion = 1

// savePause coalesces a burst of changes. An agent that is killed meanwhile, while the server is unavailable, loses
// these changes.
const savePause = 100 * time.Millisecond

// snapshot is a cache as a file. It holds facts only, never a token.
type snapshot struct {
	Version int               `json:"version"`
	Node    string            `json:"node"`
	Objects []json.RawMessage `json:"objects"`
}

func (s *Store) snapshotFile(kind store.Kind) string {
	return filepath.Join(s.cfg.Dir, kind.Resource+".json")
}

// restore fills a cache from the snapshot.
func (s *Store) restore(sh *objectCache) {
	sh.restored = s.readSnapshot(sh.kind, func(o store.Object) { sh.objects[o.Key] = o })
}

// readSnapshot visits the objects of a snapshot; false without one. An invalid snapshot is ignored.
func (s *Store) readSnapshot(kind store.Kind, visit func(store.Object)) bool {
	if s.cfg.Dir == "" {
		return false
	}
	b, err := os.ReadFile(s.snapshotFile(kind))
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	var snap snapshot
	if err == nil {
		err = json.Unmarshal(b, &snap)
	}
	switch {
	case err != nil:
		s.log.Warn("snapshot is invalid; ignoring it", "err", err)
		return false
	case snap.Version != snapshotVersion || snap.Node != s.cfg.Node:
		s.log.Warn("snapshot is invalid; ignoring it", "version", snap.Version, "node", snap.Node)
		return false
	}
	for _, raw := range snap.Objects {
		o, err := store.NewObject(raw)
		if err == nil {
			visit(o)
		}
	}
	return true
}

// notifySave requests a save of the snapshot.
func (s *Store) notifySave() {
	s.saving.Notify()
}

// save writes the snapshot when it has changed until ctx ends, and again then.
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
	errs := []error{s.annotations.save()}
	for _, kind := range s.factKinds() {
		sh := s.cache(kind)
		if sh.hashesOnly {
			if err := sh.archive.flush(); err != nil {
				errs = append(errs, fmt.Errorf("archive of %s: %w", kind.Resource, err))
			} else if sh.outdated.CompareAndSwap(true, false) {
				errs = append(errs, os.Remove(s.snapshotFile(kind)))
			}
			continue
		}
		all, due := sh.takeDirty()
		if !due {
			continue
		}
		if err := s.write(kind, all); err != nil {
			sh.markDirty()
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// write writes a snapshot atomically.
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
