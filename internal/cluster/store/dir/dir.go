// SPDX-License-Identifier: Apache-2.0

package dir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weft-net/weft/internal/atomicfile"
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

	mu    sync.Mutex
	files map[string]*file // by name
	names []string         // of the files, sorted
	index index
	// faulty are the files with problems.
	faulty map[string]bool
	// recheck are the files whose changes may be unknown to a notifier: they are looked at by every read.
	recheck map[string]bool
	// temps: the directory has temporary files, of which the writers may have been killed.
	temps bool
	// notifier reports changed files while there are watches; nil without one: every read looks at all files.
	notifier *notifier
	scanned  time.Time // the last look at all files
	watches  map[*watch]struct{}
	listen   func(path string) *notifier
	work     work
}

// work counts what was done since the store was opened.
type work struct {
	scans     int // of all files
	inspected int // files
	parsed    int // documents
}

// file is the cached content of one file.
type file struct {
	sig signature
	// aliased: other names may lead to the file, so that it changes without an event of the directory.
	aliased bool
	bytes   []byte // nil: not read
	content
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
	s := &Store{
		path: path, files: map[string]*file{}, index: newIndex(), faulty: map[string]bool{}, recheck: map[string]bool{},
		watches: map[*watch]struct{}{}, listen: newNotifier,
	}
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
	e, ok := s.index.get(key)
	if !ok {
		return store.Object{}, fmt.Errorf("%s in %s: %w", key, s.path, store.ErrNotFound)
	}
	return e.Object, nil
}

// List returns the objects of a core kind, or all if kind is empty, in the order of the files.
func (s *Store) List(kind string) ([]store.Object, error) {
	return s.list(func(k store.Key) bool { return kind == "" || k.Group == "" && k.Kind == kind })
}

// list returns the objects whose keys match.
func (s *Store) list(match func(store.Key) bool) (objects []store.Object, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refreshLocked(); err != nil {
		return nil, err
	}
	for _, name := range s.names {
		for _, e := range s.files[name].entries {
			if match(e.Key) && s.index.first(e) {
				objects = append(objects, e.Object)
			}
		}
	}
	return objects, nil
}

// Problems returns the current errors of the files: *model.Error each, with file and line.
func (s *Store) Problems() ([]error, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refreshLocked(); err != nil {
		return nil, err
	}
	return s.problemsLocked(), nil
}

func (s *Store) problemsLocked() (problems []error) {
	for _, name := range slices.Sorted(maps.Keys(s.faulty)) {
		problems = append(problems, s.files[name].problems...)
	}
	return append(problems, s.index.problems()...)
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

// refreshLocked updates the index from the files: from those that have changed where that is known, otherwise from all
// whose signatures differ.
func (s *Store) refreshLocked() error {
	names, known := s.notifier.changes(s.path)
	if !known || time.Since(s.scanned) > trust {
		return s.scanLocked()
	}
	for name := range s.recheck {
		names[name] = true
	}
	for name := range names {
		s.reloadLocked(name)
	}
	return nil
}

// scanLocked looks at all files.
func (s *Store) scanLocked() error {
	s.work.scans++
	s.scanned = time.Now()
	entries, err := os.ReadDir(s.path)
	if err != nil {
		s.notifier.missed() // what they were is not known any more
		return model.Errorf(model.CodeIO, "name a directory of Kubernetes manifests", "store directory %q: %w",
			s.path, cause(err))
	}
	there := make(map[string]bool, len(entries))
	for _, e := range entries {
		switch {
		case isManifest(e.Name()) && !e.IsDir():
			there[e.Name()] = true
			s.reloadLocked(e.Name())
		case atomicfile.IsTemp(e.Name()):
			s.temps = true
		}
	}
	for _, name := range slices.Clone(s.names) {
		if !there[name] {
			s.reloadLocked(name)
		}
	}
	return nil
}

// reloadLocked updates the index from one file.
func (s *Store) reloadLocked(name string) {
	s.work.inspected++
	old := s.files[name]
	f := s.load(name, old)
	delete(s.recheck, name)
	if f != nil && (f.sig == signature{} || f.aliased) {
		s.recheck[name] = true
	}
	if f == old {
		return
	}
	i, had := slices.BinarySearch(s.names, name)
	delete(s.faulty, name)
	switch {
	case f == nil:
		delete(s.files, name)
		s.names = slices.Delete(s.names, i, i+1)
	case had:
		s.files[name] = f
	default:
		s.files[name] = f
		s.names = slices.Insert(s.names, i, name)
	}
	if f != nil && len(f.problems) > 0 {
		s.faulty[name] = true
	}
	changed := s.index.replace(old, f)
	for w := range s.watches {
		for key := range changed {
			w.changed[key] = true
		}
		w.wake.Notify()
	}
}

// load reads one file, or returns old if it did not change; nil if it is gone or not a file.
func (s *Store) load(name string, old *file) *file {
	path := filepath.Join(s.path, name)
	faulty := func(err error) *file {
		problem := model.Errorf(model.CodeIO, "fix the file", "%s: %w", path, cause(err))
		if old != nil && old.sig == (signature{}) && len(old.problems) == 1 && old.problems[0].Error() == problem.Error() {
			return old
		}
		f := &file{content: content{problems: []error{problem}}}
		f.keepOld(old)
		return f
	}
	info, err := os.Lstat(path)
	linked := err == nil && info.Mode()&fs.ModeSymlink != 0
	if linked {
		info, err = os.Stat(path)
	}
	switch {
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
	if time.Since(info.ModTime()) < racy {
		sig = signature{} // read it again next time
	}
	if old != nil && old.bytes != nil && bytes.Equal(b, old.bytes) {
		old.sig, old.aliased = sig, linked || hasLinks(info)
		return old
	}
	f := &file{sig: sig, aliased: linked || hasLinks(info), bytes: b, content: s.parse(path, b, old)}
	if len(f.problems) > 0 {
		f.keepOld(old)
	}
	return f
}

// parse parses a file of which an earlier version, if any, is known.
func (s *Store) parse(path string, b []byte, old *file) content {
	var known map[string][]entry
	if old != nil {
		known = old.docs
	}
	c, n := parse(path, strings.HasSuffix(path, ".json"), b, known)
	s.work.parsed += n
	return c
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

// hasLinks reports whether a file has names in other directories, or may have.
func hasLinks(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return !ok || st.Nlink > 1
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
