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

// maxFile bounds what is read of one file, in bytes.
const maxFile = 16 << 20

// racy is how young a file's change may be for its time stamp not to be trusted: the kernel's clock for them ticks in
// steps of a few milliseconds, so two writes may share a stamp.
const racy = 50 * time.Millisecond

// Store is an open directory. It is safe for concurrent use, also by several processes.
type Store struct {
	path string

	mu       sync.Mutex
	files    map[string]*file // by name
	index    map[store.Key]entry
	order    []store.Key // as they stand: by file name, then by line
	problems []error
}

// file is what is remembered of one file.
type file struct {
	sig      signature
	entries  []entry
	problems []error
}

// signature tells whether a file may have changed.
type signature struct {
	dev, ino uint64
	size     int64
	changed  int64 // time of change, ns
	mtime    int64
}

// Open opens a directory and reads it. Files that cannot be understood are no error here; see Problems.
func Open(path string) (*Store, error) {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		err = errors.New("is no directory")
	}
	if err != nil {
		return nil, model.Faultf(model.CodeIO, "give a directory of Kubernetes manifests", "store directory %q: %w",
			path, plain(err))
	}
	s := &Store{path: path, files: map[string]*file{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s, s.refresh()
}

// Path is the directory.
func (s *Store) Path() string { return s.path }

// Get is the object as the files say now. The error wraps store.ErrNotFound when there is none.
func (s *Store) Get(key store.Key) (store.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refresh(); err != nil {
		return store.Object{}, err
	}
	e, ok := s.index[key]
	if !ok {
		return store.Object{}, fmt.Errorf("%s in %s: %w", key, s.path, store.ErrNotFound)
	}
	return e.Object, nil
}

// List is the objects of a core kind, or all when kind is empty, in the order of the files.
func (s *Store) List(kind string) ([]store.Object, error) {
	objects, _, err := s.now()
	if kind != "" {
		objects = slices.DeleteFunc(objects, func(o store.Object) bool { return !o.Is(kind) })
	}
	return objects, err
}

// now is all that there is.
func (s *Store) now() (objects []store.Object, problems []error, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refresh(); err != nil {
		return nil, nil, err
	}
	for _, key := range s.order {
		objects = append(objects, s.index[key].Object)
	}
	return objects, slices.Clone(s.problems), nil
}

// Problems is what is wrong with the files now: *model.Fault each, naming file and line.
func (s *Store) Problems() ([]error, error) {
	_, problems, err := s.now()
	return problems, err
}

// Cluster is the model's picture of the directory.
func (s *Store) Cluster(context.Context) (model.Cluster, error) {
	objects, err := s.List("")
	if err != nil {
		return model.Cluster{}, err
	}
	c, problems := store.Cluster(objects)
	return c, errors.Join(problems...)
}

// refresh brings the index up to the files. The caller holds the lock.
func (s *Store) refresh() error {
	entries, err := os.ReadDir(s.path)
	if err != nil {
		return model.Faultf(model.CodeIO, "give a directory of Kubernetes manifests", "store directory %q: %w",
			s.path, plain(err))
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
		s.rebuild(entries)
	}
	return nil
}

// load reads one file, or returns old when it did not change; nil when it is gone or no file.
func (s *Store) load(name string, old *file) *file {
	path := filepath.Join(s.path, name)
	faulty := func(err error) *file {
		f := &file{problems: []error{model.Faultf(model.CodeIO, "put the file right", "%s: %w", path, plain(err))}}
		f.keep(old)
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
		f.keep(old)
	}
	return f
}

// keep takes over what the file said before it had a fault.
func (f *file) keep(old *file) {
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

// rebuild makes the index from the files.
func (s *Store) rebuild(names []os.DirEntry) {
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
					s.problems, model.Faultf(model.CodeInvalidConf, "take one of them out; until then the first counts",
						"%s stands twice: in %s line %d and in %s line %d", e.Key, first.file, first.line, e.file, e.line))
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

// plain takes the system call and the path out of an error: the message names the path already.
func plain(err error) error {
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
