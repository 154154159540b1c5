// SPDX-License-Identifier: Apache-2.0

package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/sandbox/process"
)

// File descriptors of the monitor and of the pause process.
const (
	fdLock   = 3 // the lock, until the process exits
	fdReport = 4 // for the report to the runtime
)

// File descriptors of the init stage.
const (
	fdSpec  = 3 // the spec, as JSON
	fdError = 4 // the error of a failed stage; exec closes it
)

// monitor runs one container and records its exit code.
func monitor(self []string, dir string) error {
	unix.CloseOnExec(fdLock)
	unix.CloseOnExec(fdReport)
	out := os.NewFile(fdReport, "report")
	var spec Spec
	if err := process.ReadJSON(filepath.Join(dir, "spec.json"), &spec); err != nil {
		return writeReport(out, report{Error: err.Error()})
	}
	fd, err := spec.Pause.Open()
	if err != nil {
		return fail(out, dir, fmt.Errorf("the sandbox is gone: %w", err))
	}
	log, err := openLog(spec.Log)
	if err != nil {
		return fail(out, dir, err)
	}
	err = netns.Join(fd, spec.namespaces(), func() error { return run(self, dir, spec, log, out) })
	_ = unix.Close(fd)
	if err != nil {
		return fail(out, dir, err)
	}
	return nil
}

func writeReport(w io.WriteCloser, r report) error {
	b, err := json.Marshal(r)
	if err == nil {
		_, err = w.Write(b)
	}
	_ = w.Close()
	return err
}

// fail records that the command could not be started.
func fail(w io.WriteCloser, dir string, cause error) error {
	err := process.WriteJSON(filepath.Join(dir, "exit.json"),
		exit{Code: CodeNotStarted, Finished: time.Now(), Reason: "StartError", Message: cause.Error()})
	return errors.Join(err, writeReport(w, report{Error: cause.Error()}))
}

// run starts the init stage from a thread in the pod's namespaces and waits for it: the kernel kills the stage when this
// thread dies. An error means that the command was not started.
func run(self []string, dir string, spec Spec, log *logFile, out io.WriteCloser) error {
	cmd := exec.Command(self[0], append(self[1:len(self):len(self)], "sandbox", "init-container")...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), EnvSandbox+"="+spec.Sandbox)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWNS}
	if !spec.SharePID && !spec.HostPID {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWPID
	}
	var pipes stagePipes
	defer pipes.closeAll()
	if err := pipes.open(cmd); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("init stage: %w", err)
	}
	pipes.closeChildEnds()
	logged := log.follow(pipes.stdout, pipes.stderr)
	warnings, err := pipes.sendSpec(spec)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return err
	}
	id, _ := process.Read(cmd.Process.Pid) // if it has exited already, Wait below returns its exit code
	if id.PID == 0 {
		id.PID = cmd.Process.Pid
	}
	err = process.WriteJSON(filepath.Join(dir, "state.json"), running{
		Process: id, Started: time.Now(), Warnings: warnings,
	})
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return err
	}
	_ = writeReport(out, report{Process: id}) // fails if the runtime has died, which does not stop the container
	_ = cmd.Wait()
	end := exitOf(cmd.ProcessState)
	select { // wait for the last output, but not forever: a process that the command left may keep the pipes open
	case <-logged:
	case <-time.After(time.Second):
	}
	end.Finished = time.Now()
	_ = process.WriteJSON(filepath.Join(dir, "exit.json"), end) // if this fails, the exit code is unknown
	return nil
}

func exitOf(ps *os.ProcessState) exit {
	ws, ok := ps.Sys().(syscall.WaitStatus)
	switch {
	case ok && ws.Signaled():
		return exit{Code: 128 + int(ws.Signal()), Reason: "Error", Message: "killed by " + ws.Signal().String()}
	case ps.ExitCode() == 0:
		return exit{Reason: "Completed"}
	}
	return exit{Code: ps.ExitCode(), Reason: "Error"}
}

// stagePipes are the pipes between a monitor and its init stage.
type stagePipes struct {
	childEnds, parentEnds []*os.File
	stdout, stderr        *os.File
	spec, failure         *os.File
}

func (p *stagePipes) open(cmd *exec.Cmd) error {
	pair := func(childWrites bool) (child, parent *os.File, err error) {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, nil, err
		}
		child, parent = r, w
		if childWrites {
			child, parent = w, r
		}
		p.childEnds, p.parentEnds = append(p.childEnds, child), append(p.parentEnds, parent)
		return child, parent, nil
	}
	var outEnd, errEnd, specEnd, failureEnd *os.File
	var e1, e2, e3, e4 error
	outEnd, p.stdout, e1 = pair(true)
	errEnd, p.stderr, e2 = pair(true)
	specEnd, p.spec, e3 = pair(false)
	failureEnd, p.failure, e4 = pair(true)
	if err := errors.Join(e1, e2, e3, e4); err != nil {
		return fmt.Errorf("pipes: %w", err)
	}
	cmd.Stdout, cmd.Stderr = outEnd, errEnd
	cmd.ExtraFiles = []*os.File{specEnd, failureEnd}
	return nil
}

// sendSpec sends the spec to the stage and waits until the stage has executed the command. Lines that begin with
// "warning: " are returned as warnings, any other line as the error.
func (p *stagePipes) sendSpec(spec Spec) ([]string, error) {
	err := json.NewEncoder(p.spec).Encode(spec)
	_ = p.spec.Close()
	b, e := io.ReadAll(p.failure)
	if err := errors.Join(err, e); err != nil {
		return nil, fmt.Errorf("init stage: %w", err)
	}
	var warnings []string
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if w, ok := strings.CutPrefix(line, "warning: "); ok {
			warnings = append(warnings, w)
			continue
		}
		return warnings, errors.New(line)
	}
	return warnings, nil
}

func (p *stagePipes) closeChildEnds() {
	for _, f := range p.childEnds {
		_ = f.Close()
	}
}

func (p *stagePipes) closeAll() {
	p.closeChildEnds()
	for _, f := range p.parentEnds {
		_ = f.Close()
	}
}
