// SPDX-License-Identifier: Apache-2.0

// Package agentlock locks what only one agent may use: a state directory and a network namespace. Two agents in one
// namespace would undo each other's rules, routes and links.
package agentlock

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/flock"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/cniserver"
)

// NamespaceSocket is the abstract socket that a running agent has open: such names belong to a network namespace,
// whatever the mounts, and end with the process.
const NamespaceSocket = "@weft-agent"

// A killed agent's socket exists until the kernel has released all of it.
const (
	namespaceWait = 2 * time.Second
	namespaceStep = 20 * time.Millisecond
)

// Lock are the locks of a running agent, until they are closed.
type Lock struct {
	stateDir  *os.File
	namespace *net.UnixListener
}

// Close releases the locks. The nil Lock has none.
func (c *Lock) Close() error {
	if c == nil {
		return nil
	}
	var errs []error
	if c.namespace != nil {
		errs = append(errs, c.namespace.Close())
	}
	if c.stateDir != nil {
		errs = append(errs, c.stateDir.Close())
	}
	return errors.Join(errs...)
}

// Acquire locks a state directory, which it creates if needed, and the process's network namespace.
func Acquire(dir string, log *slog.Logger, after func(time.Duration) <-chan time.Time) (*Lock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, model.Errorf(model.CodeIO, "choose a --state-dir that can be written", "state directory %q: %w", dir, err)
	}
	lock, err := cniserver.Lock(filepath.Join(dir, "agent.lock"))
	switch {
	case errors.Is(err, flock.ErrHeld):
		return nil, model.Errorf(model.CodeExists, "stop the other agent or choose another --state-dir",
			"state directory %q: another agent uses it", dir)
	case err != nil:
		return nil, model.Errorf(model.CodeIO, "choose a --state-dir that can be written", "state directory %q: %w", dir, err)
	}
	c := &Lock{stateDir: lock}
	if err := c.lockNamespace(log, after); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// lockNamespace locks the network namespace. A process of an ordinary user that uses the name is no agent and must
// not prevent one from starting.
func (c *Lock) lockNamespace(log *slog.Logger, after func(time.Duration) <-chan time.Time) error {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: NamespaceSocket, Net: "unix"})
	for waited := time.Duration(0); errors.Is(err, syscall.EADDRINUSE) && waited < namespaceWait; waited += namespaceStep {
		<-after(namespaceStep)
		l, err = net.ListenUnix("unix", &net.UnixAddr{Name: NamespaceSocket, Net: "unix"})
	}
	if err == nil {
		c.namespace = l
		return nil
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("lock of the network namespace: socket %s: %w", NamespaceSocket, err)
	}
	holder, err := namespaceHolder()
	if err == nil && int(holder.Uid) != os.Geteuid() {
		log.Warn("network namespace is not locked: a process that is no agent uses the socket", "socket", NamespaceSocket,
			"uid", holder.Uid, "pid", holder.Pid)
		return nil
	}
	who := "another agent serves it"
	if err == nil && holder.Pid > 0 {
		who = fmt.Sprintf("another agent serves it (process %d)", holder.Pid)
	}
	return model.Errorf(model.CodeExists, "stop the other agent, or run this one in a network namespace of its own",
		"network namespace: %s: socket %s is taken", who, NamespaceSocket)
}

// namespaceHolder returns the process that has the lock. Its PID is 0 if it is in another PID namespace.
func namespaceHolder() (*unix.Ucred, error) {
	conn, err := net.DialTimeout("unix", NamespaceSocket, namespaceWait)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return nil, err
	}
	var holder *unix.Ucred
	var sockErr error
	if err := raw.Control(func(fd uintptr) {
		holder, sockErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, err
	}
	return holder, sockErr
}
