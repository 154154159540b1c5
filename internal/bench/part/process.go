// SPDX-License-Identifier: Apache-2.0

// Package part starts the processes that a measurement is made of and talks with them: each in a namespace and on a
// processor of its own.
package part

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

// Process is one that a measurement talks with by lines of JSON.
type Process struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	pipe *os.File
	out  *bufio.Reader
	// Stderr is what it complained of.
	Stderr *bytes.Buffer
}

// deaf is how long a measurement waits for a line that nothing was promised about.
const deaf = 30 * time.Second

// Start starts a process in a namespace, and on a processor unless that is negative.
func Start(ns *netns.NS, cpu int, argv ...string) (*Process, error) {
	return StartWith(ns, cpu, nil, argv...)
}

// StartWith starts a process that has files open: the first one is its descriptor 3.
func StartWith(ns *netns.NS, cpu int, files []*os.File, argv ...string) (*Process, error) {
	p := &Process{cmd: exec.Command(argv[0], argv[1:]...), Stderr: &bytes.Buffer{}}
	p.cmd.ExtraFiles = files
	p.cmd.Stderr = p.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	pipe, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = theirs.Close() }()
	p.in, p.pipe, p.out, p.cmd.Stdout = in, pipe, bufio.NewReader(pipe), theirs
	// An end waits in raw system calls, which the runtime's signals must not end.
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
			return fmt.Errorf("processor %d: %w", cpu, err)
		}
		return errors.Join(p.cmd.Start(), unix.SchedSetaffinity(0, &before)) // a child has its starter's
	})
	if err != nil {
		_ = pipe.Close()
		return nil, fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	return p, nil
}

// Tell writes one line.
func (p *Process) Tell(v any) error {
	return json.NewEncoder(p.in).Encode(v)
}

// Hear reads one line.
func (p *Process) Hear(v any) error {
	if err := p.pipe.SetReadDeadline(time.Now().Add(deaf)); err != nil {
		return err
	}
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(p.cmd.Args, " "), err, p.Stderr)
	}
	return json.Unmarshal(line, v)
}

// Stop ends the process: by the end of its input and SIGTERM, and if that does not help by force.
func (p *Process) Stop() {
	_ = p.in.Close()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(2*time.Second, func() { _ = p.cmd.Process.Kill() })
	_ = p.cmd.Wait()
	kill.Stop()
	_ = p.pipe.Close()
}

// Kill ends the process by force; Stop is still to be called.
func (p *Process) Kill() { _ = p.cmd.Process.Kill() }

// PID is the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }
