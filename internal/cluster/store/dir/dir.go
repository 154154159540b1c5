// SPDX-License-Identifier: Apache-2.0

package dir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"golang.org/x/sys/unix"
)

// maxFile bounds the size of one file, in bytes.
const maxFile = 16 << 20

// racy: the time stamp of a more recent change is not trusted, because the kernel's clock for it has a resolution of a
// few milliseconds, so that two writes may have the same one.
const racy = 50 * time.Millisecond

// Store is an open directory. It is safe for concurrent use, also by several processes.
type Store struct {
	path string

	mu       sync.Mutex
	files    map[string]*file // by name
	index    map[store.Key]entry
	order    []store.Key // by file name, then by line
	problems []error
}

// file is the cached content of one file.
type file struct {
	sig      signature
	entries  []entry
	problems []error
}

// signature identifies a version of a file.
type signature struct {
	dev, ino uint64
	size     int64
	changed  int64 // time of change, ns
	mtime    int64
}

// Open opens a directory and reads it. Invalid files are no error; see Problems.
func Open(path string) (*Store, error) {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		err = errors.New("is no directory")
	}
	if err != nil {
		return nil, model.Errorf(model.CodeIO, "name a directory of Kubernetes manifests", "store directory %q: %w",
			path, cause(err))
	}
	s := &Store{path: path, files: map[string]*file{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s, s.refreshLocked()
}

// Path returns the directory.
func (s *Store) Path() string { return s.path }

// Get returns the current object. The error wraps store.ErrNotFound if there is none.
func (s *Store) Get(key store.Key) (store.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refreshLocked(); err != nil {
		return store.Object{}, err
	}
	e, ok := s.index[key]
	if !ok {
		return store.Object{}, fmt.Errorf("%s in %s: %w", key, s.path, store.ErrNotFound)
	}
	return e.Object, nil
}

// List returns the objects of a core kind, or all if kind is empty, in the order of the files.
func (s *Store) List(kind string) ([]store.Object, error) {
	objects, _, err := s.snapshot()
	if kind != "" {
		objects = slices.DeleteFunc(objects, func(o store.Object) bool { return !o.Is(kind) })
	}
	return objects, err
}

// snapshot returns all objects and problems.
func (s *Store) snapshot() (objects []store.Object, problems []error, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refreshLocked(); err != nil {
		return nil, nil, err
	}
	for _, key := range s.order {
		objects = append(objects, s.index[key].Object)
	}
	return objects, slices.Clone(s.problems), nil
}

// Problems returns the current errors of the files: *model.Error each, with file and line.
func (s *Store) Problems() ([]error, error) {
	_, problems, err := s.snapshot()
	return problems, err
}

// Cluster returns the directory as a snapshot.
func (s *Store) Cluster(context.Context) (model.Cluster, error) {
	objects, err := s.List("")
	if err != nil {
		return model.Cluster{}, err
	}
	c, problems := store.Cluster(objects)
	return c, errors.Join(problems...)
}

// refreshLocked updates the index from the files.
func (s *Store) refreshLocked() error {
	entries, err := os.ReadDir(s.path)
	if err != nil {
		return model.Errorf(model.CodeIO, "name a directory of Kubernetes manifests", "store directory %q: %w",
			s.path, cause(err))
	}
	now := map[string]*file{}
	changed := false
	for _, e := range entries {
		if !isManifest(e.Name()) || e.IsDir() {
			continue
		}
		old := s.files[e.Name()]
		f := s.load(e.Name(), old)
		if f != nil {
			now[e.Name()] = f
		}
		changed = changed || f != old
	}
	if changed || len(now) != len(s.files) || s.index == nil {
		s.files = now
		s.rebuildLocked(entries)
	}
	return nil
}

// load reads one file, or returns old if it did not change; nil if it is gone or not a file.
func (s *Store) load(name string, old *file) *file {
	path := filepath.Join(s.path, name)
	faulty := func(err error) *file {
		f := &file{problems: []error{model.Errorf(model.CodeIO, "fix the file", "%s: %w", path, cause(err))}}
		f.keepOld(old)
		return f
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && old == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return faulty(err)
	case !info.Mode().IsRegular():
		return nil
	case info.Size() > maxFile:
		return faulty(fmt.Errorf("%d bytes are too many, at most %d", info.Size(), maxFile))
	}
	sig := signatureOf(info)
	if old != nil && old.sig == sig && sig != (signature{}) {
		return old
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return faulty(err)
	}
	f := &file{sig: sig}
	f.entries, f.problems = parse(path, strings.HasSuffix(name, ".json"), b)
	if time.Since(info.ModTime()) < racy {
		f.sig = signature{} // read it again next time
	}
	if len(f.problems) > 0 {
		f.keepOld(old)
	}
	return f
}

// keepOld keeps the objects of the file's last valid version.
func (f *file) keepOld(old *file) {
	if old == nil {
		return
	}
	have := map[store.Key]bool{}
	for _, e := range f.entries {
		have[e.Key] = true
	}
	for _, e := range old.entries {
		if !have[e.Key] {
			f.entries = append(f.entries, e)
		}
	}
}

// rebuildLocked builds the index from the files.
func (s *Store) rebuildLocked(names []os.DirEntry) {
	s.index, s.order, s.problems = map[store.Key]entry{}, nil, nil
	for _, n := range names {
		f := s.files[n.Name()]
		if f == nil {
			continue
		}
		s.problems = append(s.problems, f.problems...)
		for _, e := range f.entries {
			first, twice := s.index[e.Key]
			if twice {
				s.problems = append(
					s.problems, model.Errorf(model.CodeInvalidConf, "take one of them out; until then the first counts",
						"%s is there twice: in %s line %d and in %s line %d", e.Key, first.file, first.line, e.file, e.line))
				continue
			}
			s.index[e.Key] = e
			s.order = append(s.order, e.Key)
		}
	}
}

func isManifest(name string) bool {
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return !strings.HasPrefix(name, ".")
	}
	return false
}

func signatureOf(info fs.FileInfo) signature {
	sig := signature{size: info.Size(), mtime: info.ModTime().UnixNano()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		sig.dev, sig.ino, sig.changed = uint64(st.Dev), st.Ino, st.Ctim.Nano()
	}
	return sig
}

// cause removes the system call and the path from an error: the message has the path already.
func cause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}
