// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/flock"
	"github.com/weft-net/weft/internal/model"
)

// backlog is how many callers may wait to be accepted; the kernel limits it to net.core.somaxconn.
const backlog = 4096

// listener is the listening socket and the lock on its path.
type listener struct {
	fd   int
	ping int // the liveness socket; its accept does not block
	path string
	lock *os.File
}

// listen takes over the socket. The socket file of a killed agent is replaced: the lock next to it, which ends with its
// process, shows that no agent serves it.
func listen(path string) (*listener, error) {
	if !filepath.IsAbs(path) || len(path) > wire.MaxSocket {
		return nil, model.Errorf(model.CodeInvalidConf, "choose another --socket",
			"socket %q: not an absolute path of at most %d bytes", path, wire.MaxSocket)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, model.Errorf(model.CodeIO, "choose another --socket", "socket %s: %w", path, err)
	}
	lock, err := Lock(path + ".lock")
	if errors.Is(err, flock.ErrHeld) {
		return nil, model.Errorf(model.CodeExists, "stop the other agent or choose another --socket",
			"socket %s: another agent listens there", path)
	}
	if err != nil {
		return nil, model.Errorf(model.CodeIO, "choose another --socket", "socket %s: %w", path, err)
	}
	ping, err := replace(wire.PingSocket(path), unix.SOCK_NONBLOCK)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	fd, err := replace(path, 0)
	if err != nil {
		return nil, errors.Join(err, unix.Close(ping), lock.Close())
	}
	return &listener{fd: fd, ping: ping, path: path, lock: lock}, nil
}

// replace binds a socket and renames it over an existing one; flags are the kernel's (SOCK_*).
func replace(path string, flags int) (int, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return -1, model.Errorf(model.CodeIO, "choose another --socket", "socket %s: %w", path, err)
	}
	fd, err := bind(path, flags)
	if err != nil {
		return -1, fmt.Errorf("socket %s: %w", path, err)
	}
	return fd, nil
}

func bind(path string, flags int) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|flags, 0)
	if err != nil {
		return -1, err
	}
	// The file inherits the socket's mode, so that other users can never connect.
	err = unix.Fchmod(fd, 0o600)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
	}
	if err == nil {
		err = unix.Listen(fd, backlog)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// wake makes every accept and poll return, now and later.
func (l *listener) wake() {
	_ = unix.Shutdown(l.fd, unix.SHUT_RD)
	_ = unix.Shutdown(l.ping, unix.SHUT_RD)
}

// close closes the socket.
func (l *listener) close() error {
	return errors.Join(os.Remove(l.path), os.Remove(wire.PingSocket(l.path)), unix.Close(l.fd), unix.Close(l.ping),
		l.lock.Close())
}

// lockWait is how long a new agent waits for the lock: a killed agent has it until the kernel has ended all of it,
// including a child that it was forking.
const lockWait = time.Second

// Lock opens the file at path and locks it until the file is closed or the process ends. The error wraps flock.ErrHeld
// if another process has the lock.
func Lock(path string) (*os.File, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	f, err := flock.Open(ctx, path, flock.Exclusive, 0o600)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%s: %w", path, flock.ErrHeld)
	}
	return f, err
}
