// SPDX-License-Identifier: Apache-2.0

// Package child starts processes that are killed when this process ends, optionally in another network namespace.
package child

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

// Child is a started process.
type Child struct {
	// Process is the process.
	Process *os.Process
	done    chan struct{}
	err     error
}

// Start starts a command. The kernel kills it when this process ends, also by SIGKILL: the thread that starts it lives
// as long as the command.
func Start(ns *netns.NS, cmd *exec.Cmd) (*Child, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig, cmd.SysProcAttr.Setpgid = syscall.SIGKILL, true
	c := &Child{done: make(chan struct{})}
	started := make(chan error, 1)
	go c.run(ns, cmd, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return c, nil
}

func (c *Child) run(ns *netns.NS, cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// netns never changes the main thread; it uses a temporary one, whose end would kill the child.
	if unix.Gettid() == unix.Getpid() {
		next := make(chan struct{})
		go func() { defer close(next); c.run(ns, cmd, started) }()
		<-next
		return
	}
	err := ns.Do(cmd.Start)
	c.Process = cmd.Process
	started <- err
	if err == nil {
		c.err = cmd.Wait()
		close(c.done)
	}
}

// Done is closed when the process has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// Err returns how the process ended; nil while it runs.
func (c *Child) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Kill kills the process and waits for its end.
func (c *Child) Kill() {
	_ = c.Process.Kill()
	<-c.done
}

// Mapped reports whether a user exists in this process's user namespace.
func Mapped(user uint32) bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return true
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) != 3 {
			continue
		}
		first, err1 := strconv.ParseUint(f[0], 10, 32)
		count, err2 := strconv.ParseUint(f[2], 10, 32)
		if err1 == nil && err2 == nil && uint64(user) >= first && uint64(user)-first < count {
			return true
		}
	}
	return false
}
