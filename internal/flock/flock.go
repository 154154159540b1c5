// SPDX-License-Identifier: Apache-2.0

// Package flock takes the locks of files, flock(2), with a context.
//
// A lock belongs to the open file: whoever inherits the descriptor or keeps it open holds the lock, and the kernel
// releases it when the last of them is closed, however its process ends. So no lock outlives a killed process, and "who
// holds the lock lives" needs no process ID.
//
// A blocking flock cannot be given up, so Wait polls: every 0.1 ms at first, and every 5 ms after a while.
//
// Whoever removes a lock's file does so while it holds the lock. Open notices that the file it has locked is not the
// one at the path any more, and begins again.
//
// internal/kernel does not use the package: drivers import no other room. internal/atomicfile does not either: its
// locks are a part of how temporary files are told apart.
package flock

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// Mode is how a lock is held.
type Mode int

const (
	// Exclusive locks are held by one alone.
	Exclusive Mode = syscall.LOCK_EX
	// Shared locks are held by any number, while nobody holds an exclusive one.
	Shared Mode = syscall.LOCK_SH
)

// ErrHeld is wrapped by Try's error when somebody else holds the lock.
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

// TryOpen is Open that does not wait: it fails with ErrHeld.
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

// Held reports whether somebody holds an exclusive lock of the file at path.
func Held(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	return errors.Is(Try(f.Fd(), Shared), ErrHeld)
}

// isAt reports whether a file is still the one at path. That there is none is no error.
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
