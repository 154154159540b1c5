// SPDX-License-Identifier: Apache-2.0

// Package exclusive claims what only one agent may use: a state directory and a network namespace. Two agents of one
// namespace would undo each other's rules, routes and links.
package exclusive

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

// namespaceLock is the abstract socket that an agent holds: such names belong to a network namespace, whatever the
// mounts, and end with the process. Two agents with directories of their own would undo each other's rules, routes and
// links.
const namespaceLock = "@weft-agent"

// A killed agent's socket is there until the kernel has let go of all of it.
const (
	namespaceWait = 2 * time.Second
	namespaceStep = 20 * time.Millisecond
)

// Claims are what this agent alone may use, until they are closed.
type Claims struct {
	stateDir  *os.File
	namespace *net.UnixListener
}

// Close gives them up. The nil Claims has none.
func (c *Claims) Close() error {
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

// Claim makes a state directory, which it creates if need be, and the process's network namespace this agent's own.
func Claim(dir string, log *slog.Logger, after func(time.Duration) <-chan time.Time) (*Claims, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, model.Faultf(model.CodeIO, "choose a --state-dir that can be written", "state directory %q: %w", dir, err)
	}
	lock, err := cniserver.Lock(filepath.Join(dir, "agent.lock"))
	switch {
	case errors.Is(err, flock.ErrHeld):
		return nil, model.Faultf(model.CodeExists, "stop the other agent or choose another --state-dir",
			"state directory %q: another agent uses it", dir)
	case err != nil:
		return nil, model.Faultf(model.CodeIO, "choose a --state-dir that can be written", "state directory %q: %w", dir, err)
	}
	c := &Claims{stateDir: lock}
	if err := c.claimNamespace(log, after); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// claimNamespace takes the lock of the network namespace. A process of an ordinary user that has the name is no agent,
// and must not keep one from starting.
func (c *Claims) claimNamespace(log *slog.Logger, after func(time.Duration) <-chan time.Time) error {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: namespaceLock, Net: "unix"})
	for waited := time.Duration(0); errors.Is(err, syscall.EADDRINUSE) && waited < namespaceWait; waited += namespaceStep {
		<-after(namespaceStep)
		l, err = net.ListenUnix("unix", &net.UnixAddr{Name: namespaceLock, Net: "unix"})
	}
	if err == nil {
		c.namespace = l
		return nil
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("lock of the network namespace: socket %s: %w", namespaceLock, err)
	}
	holder, err := namespaceHolder()
	if err == nil && int(holder.Uid) != os.Geteuid() {
		log.Warn("network namespace is not locked: a process that is no agent has the name", "socket", namespaceLock,
			"uid", holder.Uid, "pid", holder.Pid)
		return nil
	}
	who := "another agent serves it"
	if err == nil && holder.Pid > 0 {
		who = fmt.Sprintf("another agent serves it (process %d)", holder.Pid)
	}
	return model.Faultf(model.CodeExists, "stop the other agent, or run this one in a network namespace of its own",
		"network namespace: %s: socket %s is taken", who, namespaceLock)
}

// namespaceHolder is the process that has the lock. Its PID is 0 when it is in a PID namespace that is not seen here.
func namespaceHolder() (*unix.Ucred, error) {
	conn, err := net.DialTimeout("unix", namespaceLock, namespaceWait)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return nil, err
	}
	var holder *unix.Ucred
	var asked error
	if err := raw.Control(func(fd uintptr) {
		holder, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, err
	}
	return holder, asked
}
