// SPDX-License-Identifier: Apache-2.0

// Package sysctl reads and writes settings below /proc/sys inside a namespace. Names have slashes
// ("net/ipv4/ip_forward"), because link names may have dots.
package sysctl

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

const root = "/proc/sys"

// Value is a setting's value, with single spaces between words; Missing when the namespace has no such setting, Hidden
// when it is write-only (net/ipv4/route/flush), a trigger rather than a setting.
type Value struct {
	Text            string
	Missing, Hidden bool
}

// Pair is a setting to write; IfPresent ignores a missing one.
type Pair struct {
	Name, Value string
	IfPresent   bool
}

// Files are the settings of one namespace. Every ADD reads those that are not about a link, so their files stay open:
// reading one again is one system call without entering the namespace. Values are not cached.
type Files struct {
	ns *netns.NS

	mu     sync.Mutex
	open   map[string]int
	closed bool
}

// New returns the settings of ns, which must stay open; nil is the process's own namespace.
func New(ns *netns.NS) *Files { return &Files{ns: ns, open: map[string]int{}} }

// Close closes the files.
func (f *Files) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for name, fd := range f.open {
		_ = unix.Close(fd)
		delete(f.open, name)
	}
}

// Read reads settings, entering the namespace once for those whose files are not open.
func (f *Files) Read(names []string) (map[string]Value, error) {
	out := make(map[string]Value, len(names))
	var unread []string
	for _, name := range names {
		if text, ok := f.again(name); ok {
			out[name] = Value{Text: text}
		} else {
			unread = append(unread, name)
		}
	}
	if len(unread) == 0 {
		return out, nil
	}
	err := f.ns.Do(func() error {
		for _, name := range unread {
			text, err := f.first(name)
			switch {
			case errors.Is(err, os.ErrNotExist):
				out[name] = Value{Missing: true}
			case errors.Is(err, os.ErrPermission):
				out[name] = Value{Hidden: true}
			case err != nil:
				return fmt.Errorf("sysctl %s: %w", name, err)
			default:
				out[name] = Value{Text: text}
			}
		}
		return nil
	})
	return out, err
}

// again reads an open file.
func (f *Files) again(name string) (string, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fd, ok := f.open[name]
	if !ok {
		return "", false
	}
	text, err := readFile(fd)
	if err != nil { // the setting's subject is gone
		_ = unix.Close(fd)
		delete(f.open, name)
		return "", false
	}
	return text, true
}

func (f *Files) first(name string) (string, error) {
	path, err := file(name)
	if err != nil {
		return "", err
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil && !errors.Is(err, os.ErrNotExist) { // a user that may not write may be able to read
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return "", err
	}
	text, err := readFile(fd)
	if err == nil && global(name) && f.keep(name, fd) {
		return text, nil
	}
	return text, errors.Join(err, unix.Close(fd))
}

func (f *Files) keep(name string, fd int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, there := f.open[name]; there || f.closed || len(f.open) >= maxOpen {
		return false
	}
	f.open[name] = fd
	return true
}

// maxOpen bounds the files that stay open.
const maxOpen = 64

// global reports whether a setting belongs to the namespace and not to one of its links, whose number is unbounded.
func global(name string) bool {
	_, link := Of(name)
	return !link && !strings.Contains(name, "/neigh/")
}

// Write writes settings, entering the namespace once for those whose files are not open.
func (f *Files) Write(pairs []Pair) error {
	pairs = slices.DeleteFunc(slices.Clone(pairs), f.overwrite)
	if len(pairs) == 0 {
		return nil
	}
	return f.ns.Do(func() error {
		for _, p := range pairs {
			path, err := file(p.Name)
			if err == nil {
				err = writeFile(path, p.Value)
			}
			if err != nil && (!p.IfPresent || !errors.Is(err, os.ErrNotExist)) {
				return fmt.Errorf("sysctl %s = %s: %w", p.Name, p.Value, err)
			}
		}
		return nil
	})
}

// overwrite writes an open file. After a failure the caller writes by name, which reports the error.
func (f *Files) overwrite(p Pair) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	fd, ok := f.open[p.Name]
	if !ok {
		return false
	}
	_, err := unix.Pwrite(fd, []byte(p.Value), 0)
	return err == nil
}

// file returns the setting's path. Names come from configurations, so one that leaves /proc/sys is refused.
func file(name string) (string, error) {
	path := filepath.Join(root, name)
	if path != root+"/"+name {
		return "", fmt.Errorf("%q is no name below %s", name, root)
	}
	return path, nil
}

// readFile reads a small file from its beginning, with one system call.
func readFile(fd int) (string, error) {
	var buf [4096]byte
	n, err := unix.Pread(fd, buf[:], 0)
	if err != nil {
		return "", err
	}
	return strings.Join(strings.Fields(string(buf[:n])), " "), nil
}

func writeFile(path, value string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	_, err = unix.Write(fd, []byte(value))
	return errors.Join(err, unix.Close(fd))
}
