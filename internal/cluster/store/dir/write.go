// SPDX-License-Identifier: Apache-2.0

package dir

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/flock"
	"github.com/weft-net/weft/internal/model"
	"sigs.k8s.io/yaml"
)

// editorTries is how often Modify starts again because an editor has written the file meanwhile.
const editorTries = 5

// Create adds an object in a file of its own, "kind-namespace-name.yaml". The error wraps store.ErrExists if the name
// is taken.
func (s *Store) Create(ctx context.Context, o store.Object) (store.Object, error) {
	o, err := o.WithCreationTime(time.Now())
	if err != nil {
		return o, err
	}
	err = s.withLock(ctx, func() error {
		if have, ok := s.index.get(o.Key); ok {
			return model.Errorf(model.CodeExists, "update it or choose another name", "%s exists in %s line %d: %w",
				o.Key, have.file, have.line, store.ErrExists)
		}
		text, err := yaml.JSONToYAML(o.Raw)
		if err != nil {
			return fmt.Errorf("%s: %w", o.Key, err)
		}
		path := filepath.Join(s.path, fileName(o.Key))
		if _, err := os.Lstat(path); err == nil {
			return model.Errorf(model.CodeExists, "move the file away", "%s: cannot be written to %s: %w", o.Key, path,
				store.ErrExists)
		}
		return s.replace(path, text)
	})
	return o, err
}

// CompareAndSwap replaces the object if it still has the version. The error wraps store.ErrConflict if it was changed
// meanwhile and store.ErrNotFound if it is gone.
func (s *Store) CompareAndSwap(ctx context.Context, version string, next store.Object) error {
	return s.withLock(ctx, func() error { return s.putLocked(version, next) })
}

// Modify edits an object under the write lock. An edit that changes nothing writes nothing.
func (s *Store) Modify(ctx context.Context, key store.Key, edit store.Edit) (store.Object, error) {
	if err := ctx.Err(); err != nil {
		return store.Object{}, fmt.Errorf("%s: %w", key, err)
	}
	var next store.Object
	err := s.withLock(ctx, func() (err error) {
		for range editorTries {
			have, ok := s.index.get(key)
			if !ok {
				return fmt.Errorf("%s in %s: %w", key, s.path, store.ErrNotFound)
			}
			if next, err = have.Edited(edit); err != nil || next.Version == have.Version {
				return err
			}
			if err = s.putLocked(have.Version, next); !errors.Is(err, store.ErrConflict) {
				return err
			}
			if err := s.refreshLocked(); err != nil {
				return err
			}
		}
		return err
	})
	return next, err
}

// putLocked replaces one object. The index is current.
func (s *Store) putLocked(version string, next store.Object) error {
	e, b, err := s.writable(next.Key, version)
	if err != nil {
		return err
	}
	if b, err = e.rendered(b, next.Raw); err != nil {
		return err
	}
	return s.replace(e.file, b)
}

// SetPodStatus writes a pod's status and annotations.
func (s *Store) SetPodStatus(ctx context.Context, namespace, name string, status store.PodStatus) error {
	_, err := s.Modify(ctx, store.PodKey(namespace, name), status.Edit)
	return err
}

// Delete removes an object, with an empty version whatever its version is. A file without other objects is removed.
func (s *Store) Delete(ctx context.Context, key store.Key, version string) error {
	return s.withLock(ctx, func() error {
		e, b, err := s.writable(key, version)
		if err != nil {
			return err
		}
		if b, err = e.removed(b); err != nil {
			return err
		}
		if b != nil {
			return s.replace(e.file, b)
		}
		if err := os.Remove(e.file); err != nil {
			return s.writeError(err)
		}
		return nil
	})
}

// withLock runs write with a current index, while no other process writes.
func (s *Store) withLock(ctx context.Context, write func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, err := os.Open(s.path)
	if err != nil {
		return s.writeError(err)
	}
	defer func() { _ = d.Close() }()
	if err := flock.Wait(ctx, d.Fd(), flock.Exclusive); err != nil { // writes are short
		return s.writeError(err)
	}
	if err := s.refreshLocked(); err != nil {
		return err
	}
	if s.temps { // of killed writers: a deletion removes them, too
		s.temps = false
		if err := atomicfile.Sweep(s.path); err != nil {
			return s.writeError(err)
		}
	}
	return write()
}

// writable returns the entry of key, if it has the version and its file is valid, and the file. Programs that write
// files themselves do not know the lock: the entry is that of the file as it is now, not of the index. The error wraps
// store.ErrConflict if the two differ.
func (s *Store) writable(key store.Key, version string) (entry, []byte, error) {
	e, ok := s.index.get(key)
	if !ok {
		return e, nil, fmt.Errorf("%s in %s: %w", key, s.path, store.ErrNotFound)
	}
	f := s.files[filepath.Base(e.file)]
	if f != nil && len(f.problems) > 0 {
		return e, nil, model.Errorf(model.CodeInvalidConf, "fix the file first", "%s: not written, the file is invalid: %w",
			key, f.problems[0])
	}
	b, err := os.ReadFile(e.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return e, nil, s.writeError(err)
	}
	c := s.parse(e.file, b, f)
	i := slices.IndexFunc(c.entries, func(now entry) bool { return now.Key == key })
	if len(c.problems) > 0 || i < 0 || c.entries[i].Version != e.Version || version != "" && version != e.Version {
		return e, nil, fmt.Errorf("%s in %s: %w", key, e.file, store.ErrConflict)
	}
	return c.entries[i], b, nil
}

// replace writes the file at path atomically.
func (s *Store) replace(path string, b []byte) error {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	mode := fs.FileMode(0o644)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	if err := atomicfile.Write(path, b, mode, atomicfile.CrashSafe); err != nil {
		return s.writeError(err)
	}
	return nil
}

func (s *Store) writeError(err error) error {
	return model.Errorf(model.CodeIO, "make the directory writable or choose another",
		"store directory %q cannot be written: %w", s.path, cause(err))
}

// rendered returns the file with the entry's document replaced.
func (e entry) rendered(b, raw []byte) ([]byte, error) {
	isJSON := strings.HasSuffix(e.file, ".json")
	doc := b[e.span.start:e.span.end]
	if e.item >= 0 {
		var err error
		if raw, err = withItem(isJSON, doc, e.item, raw); err != nil {
			return nil, fmt.Errorf("%s in %s: %w", e.Key, e.file, err)
		}
	}
	var text []byte
	if isJSON {
		var out bytes.Buffer
		if err := json.Indent(&out, raw, "", "  "); err != nil {
			return nil, fmt.Errorf("%s: %w", e.Key, err)
		}
		out.WriteByte('\n')
		text = out.Bytes()
	} else {
		y, err := yaml.JSONToYAML(raw)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Key, err)
		}
		text = append(bytes.Clone(doc[:blankLines(doc)]), y...)
	}
	return bytes.Join([][]byte{b[:e.span.start], text, b[e.span.end:]}, nil), nil
}

// withItem returns the List of doc with one item replaced, or removed if raw is nil.
func withItem(isJSON bool, doc []byte, item int, raw []byte) ([]byte, error) {
	list, err := toJSON(isJSON, doc)
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	var items []json.RawMessage
	if err := json.Unmarshal(list, &fields); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(fields["items"], &items); err != nil {
		return nil, err
	}
	if item >= len(items) {
		return nil, store.ErrConflict
	}
	if raw == nil {
		items = append(items[:item], items[item+1:]...)
	} else {
		items[item] = raw
	}
	if fields["items"], err = json.Marshal(items); err != nil {
		return nil, err
	}
	return json.Marshal(fields)
}

// removed returns the file without the entry; nil if nothing is left of it.
func (e entry) removed(b []byte) ([]byte, error) {
	if e.item >= 0 {
		isJSON := strings.HasSuffix(e.file, ".json")
		list, err := withItem(isJSON, b[e.span.start:e.span.end], e.item, nil)
		if err != nil {
			return nil, fmt.Errorf("%s in %s: %w", e.Key, e.file, err)
		}
		return entry{Object: e.Object, file: e.file, span: e.span, item: -1}.rendered(b, list)
	}
	rest := append(bytes.Clone(b[:e.span.start]), b[e.span.end:]...)
	docs, err := split(rest)
	if err != nil {
		return nil, err
	}
	for _, d := range docs {
		if text := rest[d.start:d.end]; blankLines(text) < len(text) {
			return rest, nil
		}
	}
	return nil, nil
}

func fileName(k store.Key) string {
	parts := []string{strings.ToLower(k.Kind)}
	if k.Namespace != "" {
		parts = append(parts, k.Namespace)
	}
	return strings.Join(append(parts, k.Name), "-") + ".yaml"
}
