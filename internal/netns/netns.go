// SPDX-License-Identifier: Apache-2.0

// Package netns opens, makes and enters network namespaces. It is the only package in weft that calls setns and
// unshare: a thread that is left in the wrong namespace is the worst bug that a network daemon can have, so the code
// that can cause it is small and separate.
package netns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// ErrGone is wrapped by errors about a namespace path that does not exist, or that is no longer a network namespace
// (the usual state after the runtime has unmounted it).
var ErrGone = errors.New("network namespace is gone")

// notNetns is the ErrGone of a path that exists but is not a network namespace.
type notNetns struct{}

func (notNetns) Error() string        { return "not a network namespace" }
func (notNetns) Is(target error) bool { return target == ErrGone }

// NS is an open network namespace. The namespace lives at least as long as the NS is open.
type NS struct {
	fd     int // a bare descriptor: an os.File would be registered with the poller, which costs five system calls
	path   string
	id     atomic.Uint64 // 0: not read yet
	closed atomic.Bool
}

// Open opens the network namespace at path (a bind mount or a /proc/PID/ns/net link). The error wraps ErrGone when
// there is no network namespace at path.
func Open(path string) (*NS, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			return nil, fmt.Errorf("namespace %s: %w", path, ErrGone)
		}
		return nil, fmt.Errorf("namespace %s: %w", path, err)
	}
	return FromFD(fd, path)
}

// FromFD takes ownership of an open descriptor of a namespace, such as one received from weft-cni; path is used in
// messages and results only. FromFD closes fd when it is not a network namespace.
func FromFD(fd int, path string) (*NS, error) {
	kind, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE)
	if err != nil || kind != unix.CLONE_NEWNET {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("namespace %s: %w", path, notNetns{})
	}
	return &NS{fd: fd, path: path}, nil
}

const self = "/proc/thread-self/ns/net"

// Current opens the namespace of the calling thread.
func Current() (*NS, error) {
	return Open(self)
}

// Path returns the path by which the namespace was opened.
func (n *NS) Path() string { return n.path }

// Fd returns the namespace's descriptor; n still owns it.
func (n *NS) Fd() int { return n.fd }

// Close releases the descriptor. A second Close does nothing.
func (n *NS) Close() error {
	if n.closed.Swap(true) {
		return nil
	}
	return unix.Close(n.fd)
}

// ID returns the namespace's inode number on nsfs, which is unique while the namespace exists.
func (n *NS) ID() (uint64, error) {
	if n.closed.Load() {
		return 0, fmt.Errorf("namespace %s: %w", n.path, os.ErrClosed)
	}
	if id := n.id.Load(); id != 0 {
		return id, nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(n.Fd(), &st); err != nil {
		return 0, fmt.Errorf("namespace %s: %w", n.path, err)
	}
	n.id.Store(st.Ino)
	return st.Ino, nil
}

// Same reports whether a and b are the same namespace.
func Same(a, b *NS) (bool, error) {
	ia, err := a.ID()
	if err != nil {
		return false, err
	}
	ib, err := b.ID()
	return ia == ib, err
}

// Do runs f on a thread that is inside the namespace. f must not start goroutines that rely on it. A nil NS means the
// namespace of the process.
//
// The calling goroutine's own thread enters the namespace and returns: passing f to another thread costs more than
// everything else, and waits on a busy host. A thread that may not re-enter its own namespace (its owner lacks the
// privilege) does not enter another one: then f runs on a separate thread, which stays locked and ends with its
// goroutine if it cannot return.
func (n *NS) Do(f func() error) error {
	if n == nil {
		return f()
	}
	if n.closed.Load() { // the descriptor's number may be another file's by now
		return fmt.Errorf("enter namespace %s: %w", n.path, os.ErrClosed)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if unix.Gettid() == unix.Getpid() {
		return n.doOnNewThread(f)
	}
	back, err := unix.Open(self, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("namespace of this thread: %w", err)
	}
	defer func() { _ = unix.Close(back) }()
	if unix.Setns(back, unix.CLONE_NEWNET) != nil { // check that returning will be allowed
		return n.doOnNewThread(f)
	}
	if err := unix.Setns(n.fd, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter namespace %s: %w", n.path, err)
	}
	defer leave(back)
	return f()
}

// leave returns the thread to its namespace. The same call succeeded a moment ago, so it can fail only when the kernel
// has no memory for a few pointers.
func leave(back int) {
	const tries = 100
	var err error
	for range tries {
		if err = unix.Setns(back, unix.CLONE_NEWNET); err == nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
	panic(fmt.Sprintf("a thread cannot leave a network namespace: %v", err)) // continuing would be worse
}

// doOnNewThread is Do on a thread of its own.
func (n *NS) doOnNewThread(f func() error) error {
	done := make(chan error, 1)
	onNewThread(func() {
		back, err := unix.Open(self, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			runtime.UnlockOSThread()
			done <- fmt.Errorf("namespace of this thread: %w", err)
			return
		}
		defer func() { _ = unix.Close(back) }()
		if err := unix.Setns(n.fd, unix.CLONE_NEWNET); err != nil {
			runtime.UnlockOSThread()
			done <- fmt.Errorf("enter namespace %s: %w", n.path, err)
			return
		}
		err = f()
		if unix.Setns(back, unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	})
	return <-done
}

// onNewThread runs f on a locked thread, which ends with f unless f unlocks it. It never uses the process's first
// thread: that one cannot end, so it would stay in the namespace where f left it, and the whole process (/proc/PID/ns,
// /proc/self/net) would appear to be there.
func onNewThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		done := make(chan struct{})
		onNewThread(func() { // on another thread, because this goroutine is locked to the first one
			defer close(done)
			f()
		})
		<-done
		runtime.UnlockOSThread()
	}()
}

// New makes a new namespace and binds it to path, which must not exist; missing parent directories are created. The
// caller removes it with Remove.
func New(path string) (*NS, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("namespace %s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return nil, fmt.Errorf("namespace %s: %w", path, err)
	}
	_ = f.Close()
	done := make(chan error, 1)
	onNewThread(func() {
		// The thread ends with this function, and with it the only other reference to the namespace.
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("unshare network namespace: %w", err)
			return
		}
		done <- unix.Mount(self, path, "none", unix.MS_BIND, "")
	})
	if err := <-done; err != nil {
		_ = os.Remove(path)
		return nil, fmt.Errorf("namespace %s: %w", path, err)
	}
	return Open(path)
}

// Anonymous makes a new namespace without a path: it ends when the NS is closed and no process is in it.
func Anonymous() (*NS, error) {
	type answer struct {
		ns  *NS
		err error
	}
	done := make(chan answer, 1)
	onNewThread(func() {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- answer{nil, fmt.Errorf("unshare network namespace: %w", err)}
			return
		}
		ns, err := Current()
		done <- answer{ns, err}
	})
	a := <-done
	return a.ns, a.err
}

// Remove unmounts a namespace made by New and removes its file. A missing path is no error.
func Remove(path string) error {
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) &&
		!errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("namespace %s: unmount: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("namespace %s: %w", path, err)
	}
	return nil
}
