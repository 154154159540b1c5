// SPDX-License-Identifier: Apache-2.0

// Package subprocess starts the processes of a measurement, each in its own namespace and pinned to a CPU, and
// exchanges lines of JSON with them.
package subprocess

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

// Process is a running process. It reads and writes lines of JSON.
type Process struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	pipe *os.File
	out  *bufio.Reader
	// Stderr collects the standard error of the process.
	Stderr *bytes.Buffer
}

// readTimeout is the time limit for a line.
const readTimeout = 30 * time.Second

// Start starts a process in a namespace and pins it to a CPU unless cpu is negative.
func Start(ns *netns.NS, cpu int, argv ...string) (*Process, error) {
	return StartWith(ns, cpu, nil, argv...)
}

// StartWith starts a process that inherits files; the first one is its descriptor 3.
func StartWith(ns *netns.NS, cpu int, files []*os.File, argv ...string) (*Process, error) {
	p := &Process{cmd: exec.Command(argv[0], argv[1:]...), Stderr: &bytes.Buffer{}}
	p.cmd.ExtraFiles = files
	p.cmd.Stderr = p.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	pipe, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = write.Close() }()
	p.in, p.pipe, p.out, p.cmd.Stdout = in, pipe, bufio.NewReader(pipe), write
	// The process waits in raw system calls, which the runtime's preemption signals must not interrupt.
	p.cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1")
	err = ns.Do(func() error {
		if cpu < 0 {
			return p.cmd.Start()
		}
		var before, one unix.CPUSet
		if err := unix.SchedGetaffinity(0, &before); err != nil {
			return err
		}
		one.Set(cpu)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			return fmt.Errorf("CPU %d: %w", cpu, err)
		}
		// A child inherits the affinity of the thread that starts it.
		return errors.Join(p.cmd.Start(), unix.SchedSetaffinity(0, &before))
	})
	if err != nil {
		_ = pipe.Close()
		return nil, fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	return p, nil
}

// Send writes one line.
func (p *Process) Send(v any) error {
	return json.NewEncoder(p.in).Encode(v)
}

// Receive reads one line.
func (p *Process) Receive(v any) error {
	if err := p.pipe.SetReadDeadline(time.Now().Add(readTimeout)); err != nil {
		return err
	}
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(p.cmd.Args, " "), err, p.Stderr)
	}
	return json.Unmarshal(line, v)
}

// Stop closes the input, sends SIGTERM, and after two seconds SIGKILL.
func (p *Process) Stop() {
	_ = p.in.Close()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(2*time.Second, func() { _ = p.cmd.Process.Kill() })
	_ = p.cmd.Wait()
	kill.Stop()
	_ = p.pipe.Close()
}

// Kill sends SIGKILL; Stop must still be called.
func (p *Process) Kill() { _ = p.cmd.Process.Kill() }

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// CPUTime returns the user and system time of a process until now, in nanoseconds of the kernel's own clock.
func CPUTime(pid int) (time.Duration, error) {
	// clock_getcpuclockid(3): the CPU clock of another process includes exited threads.
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &ts); err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}
