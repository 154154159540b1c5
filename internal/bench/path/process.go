// SPDX-License-Identifier: Apache-2.0

package path

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

// process is one that the bench talks with by lines of JSON.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	pipe   *os.File
	out    *bufio.Reader
	stderr *bytes.Buffer
}

// deaf is how long the bench waits for a line that nothing was promised about.
const deaf = 30 * time.Second

// start starts a process in a namespace, and on a processor unless that is negative.
func start(ns *netns.NS, cpu int, argv ...string) (*process, error) {
	p := &process{cmd: exec.Command(argv[0], argv[1:]...), stderr: &bytes.Buffer{}}
	p.cmd.Stderr = p.stderr
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

func (p *process) tell(v any) error {
	return json.NewEncoder(p.in).Encode(v)
}

// hear reads one line.
func (p *process) hear(v any) error {
	if err := p.pipe.SetReadDeadline(time.Now().Add(deaf)); err != nil {
		return err
	}
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(p.cmd.Args, " "), err, p.stderr)
	}
	return json.Unmarshal(line, v)
}

// stop ends the process: by the end of its input and SIGTERM, and if that does not help by force.
func (p *process) stop() {
	_ = p.in.Close()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(2*time.Second, func() { _ = p.cmd.Process.Kill() })
	_ = p.cmd.Wait()
	kill.Stop()
	_ = p.pipe.Close()
}
