// SPDX-License-Identifier: Apache-2.0

// Package flock takes file locks, flock(2), with a context.
//
// A lock belongs to the open file description: a process that inherits the descriptor or keeps it open holds the lock,
// and the kernel releases it when the last descriptor is closed, however its process ends. So no lock outlives a killed
// process, and "the holder of the lock is alive" needs no process ID.
//
// A blocking flock cannot be interrupted, so Wait polls: every 0.1 ms at first, later every 5 ms.
//
// A process removes a lock's file only while it holds the lock. Open notices that the file that it has locked is no
// longer the one at the path, and tries again.
//
// internal/kernel does not use the package: drivers import no other package of weft's. internal/atomicfile does not
// either: its locks are a part of its protocol for temporary files.
package flock

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// Mode is the kind of a lock.
type Mode int

const (
	// Exclusive locks have one holder.
	Exclusive Mode = syscall.LOCK_EX
	// Shared locks have any number of holders, while there is no exclusive one.
	Shared Mode = syscall.LOCK_SH
)

// ErrHeld is wrapped by the error of Try when another process holds the lock.
var ErrHeld = errors.New("locked by another process")

const (
	firstPause   = 100 * time.Microsecond
	longestPause = 5 * time.Millisecond
)

// Try takes the lock of an open file, or fails with ErrHeld.
func Try(fd uintptr, how Mode) error {
	for {
		switch err := syscall.Flock(int(fd), int(how)|syscall.LOCK_NB); {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return ErrHeld
		default:
			return os.NewSyscallError("flock", err)
		}
	}
}

// Wait takes the lock of an open file. It fails with the context's error when that ends first; a lock that is free is
// taken even then.
func Wait(ctx context.Context, fd uintptr, how Mode) error {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		if err := Try(fd, how); !errors.Is(err, ErrHeld) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// Open opens the file at path, which it creates with mode when there is none, and waits for its lock. Closing the file
// releases the lock.
func Open(ctx context.Context, path string, how Mode, mode fs.FileMode) (*os.File, error) {
	return open(path, mode, func(fd uintptr) error { return Wait(ctx, fd, how) })
}

// TryOpen is like Open, but does not wait: it fails with ErrHeld.
func TryOpen(path string, how Mode, mode fs.FileMode) (*os.File, error) {
	return open(path, mode, func(fd uintptr) error { return Try(fd, how) })
}

func open(path string, mode fs.FileMode, lock func(fd uintptr) error) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, mode)
		if err != nil {
			return nil, err
		}
		if err := lock(f.Fd()); err != nil {
			return nil, errors.Join(&fs.PathError{Op: "lock", Path: path, Err: err}, f.Close())
		}
		at, err := isAt(f, path)
		if at {
			return f, nil
		}
		_ = f.Close() // its holder removed it before it released the lock
		if err != nil {
			return nil, err
		}
	}
}

// Held reports whether a process holds an exclusive lock on the file at path.
func Held(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	return errors.Is(Try(f.Fd(), Shared), ErrHeld)
}

// isAt reports whether f is still the file at path. A missing file is no error.
func isAt(f *os.File, path string) (bool, error) {
	mine, err := f.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(mine, there), err
}
