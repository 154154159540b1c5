// SPDX-License-Identifier: Apache-2.0

// Package inotify watches directories by one inotify instance for all users of a process: the kernel allows a user only
// 128 instances by default, for all programs of a node together (fs.inotify.max_user_instances).
package inotify

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Instance is an inotify instance. A nil Instance watches nothing: who uses it looks periodically.
type Instance struct {
	file *os.File

	reading sync.Mutex // until what was read is dispatched

	mu      sync.Mutex
	watches map[*watch]struct{}
}

// watch is one user's interest in a directory.
type watch struct {
	descriptor int // the kernel's, which watches of one directory share, by whatever path
	mask       uint32
	changed    func(name string)
}

// New creates an instance; Run must be called.
func New() (*Instance, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify (the limit of instances is the sysctl fs.inotify.max_user_instances): %w", err)
	}
	return &Instance{file: os.NewFile(uintptr(fd), "inotify"), watches: map[*watch]struct{}{}}, nil
}

// Watch calls changed with the name of an entry of the directory to which one of the events of mask (unix.IN_MOVED_TO and
// the like) happened, and with "" when the directory itself is gone, or events were lost. changed must not block and
// must not call Watch or remove. remove ends that. An error means that nothing is reported.
func (i *Instance) Watch(directory string, mask uint32, changed func(name string)) (remove func(), err error) {
	if i == nil {
		return func() {}, fmt.Errorf("inotify: %s: not available", directory)
	}
	w := &watch{mask: mask, changed: changed}
	i.mu.Lock()
	defer i.mu.Unlock()
	err = i.control(func(fd int) (err error) {
		// Without IN_MASK_ADD a second user of the directory would end the events of the first.
		w.descriptor, err = unix.InotifyAddWatch(fd, directory, mask|unix.IN_ONLYDIR|unix.IN_MASK_ADD)
		return err
	})
	if err != nil {
		return func() {}, fmt.Errorf("inotify: %s: %w", directory, err)
	}
	i.watches[w] = struct{}{}
	return func() { i.remove(w) }, nil
}

// remove ends a watch. The kernel's is kept for others of the same directory, which may then get events that only this
// one wanted: dispatch leaves them out.
func (i *Instance) remove(w *watch) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, is := i.watches[w]; !is {
		return
	}
	delete(i.watches, w)
	for o := range i.watches {
		if o.descriptor == w.descriptor {
			return
		}
	}
	// An error means that the kernel has removed it, with the directory.
	_ = i.control(func(fd int) error { _, err := unix.InotifyRmWatch(fd, uint32(w.descriptor)); return err })
}

// control calls f with the descriptor, unless the instance is closed.
func (i *Instance) control(f func(fd int) error) error {
	raw, err := i.file.SyscallConn()
	if err != nil {
		return err
	}
	if e := raw.Control(func(fd uintptr) { err = f(int(fd)) }); e != nil {
		return e
	}
	return err
}

// Close closes the instance; closing it twice is no error.
func (i *Instance) Close() error {
	if i == nil {
		return nil
	}
	if err := i.file.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// Run reports events until ctx ends; then the instance is closed. After an error nothing is reported any more.
func (i *Instance) Run(ctx context.Context) error {
	if i == nil {
		return nil
	}
	defer context.AfterFunc(ctx, func() { _ = i.Close() })()
	defer func() { _ = i.Close() }()
	raw, err := i.file.SyscallConn()
	if err == nil {
		var failed error
		err = raw.Read(func(fd uintptr) bool {
			failed = i.drain(int(fd))
			return failed != nil // otherwise it is called again when there are events
		})
		err = errors.Join(failed, err)
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("inotify: %w", err)
}

// Drain reports the events of all earlier changes, and returns when the functions of their watches have returned: no
// caller may hold a lock that these take. Run need not be running.
func (i *Instance) Drain() error {
	if i == nil {
		return errors.New("inotify: not available")
	}
	return i.control(i.drain)
}

// drain reads and dispatches until the queue is empty.
func (i *Instance) drain(fd int) error {
	i.reading.Lock()
	defer i.reading.Unlock()
	var buf [16 << 10]byte
	for {
		n, err := unix.Read(fd, buf[:])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return nil
		case err != nil:
			return fmt.Errorf("inotify: %w", err)
		}
		for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
			descriptor := int(int32(binary.NativeEndian.Uint32(b)))
			mask, size := binary.NativeEndian.Uint32(b[4:]), int(binary.NativeEndian.Uint32(b[12:]))
			end := min(unix.SizeofInotifyEvent+size, len(b))
			name := string(bytes.TrimRight(b[unix.SizeofInotifyEvent:end], "\x00"))
			b = b[end:]
			i.dispatch(descriptor, mask, name)
		}
	}
}

func (i *Instance) dispatch(descriptor int, mask uint32, name string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	lost, gone := mask&unix.IN_Q_OVERFLOW != 0, mask&(unix.IN_IGNORED|unix.IN_UNMOUNT) != 0
	for w := range i.watches {
		switch {
		case lost, gone && w.descriptor == descriptor:
			w.changed("")
		case w.descriptor == descriptor && mask&w.mask != 0:
			w.changed(name)
		}
	}
}
