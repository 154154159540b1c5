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

// Descriptors that a monitor is started with.
const (
	fdLock   = 3 // held as long as the monitor lives
	fdReport = 4 // the runtime listens here until the command runs
)

// Descriptors of the init stage.
const (
	fdSpec    = 3 // the spec, as JSON
	fdProblem = 4 // what stopped the stage; closed without a word by the command's exec
)

// monitor runs one container and writes down how it ended.
func monitor(self []string, dir string) error {
	unix.CloseOnExec(fdLock)
	unix.CloseOnExec(fdReport)
	out := os.NewFile(fdReport, "report")
	var spec Spec
	if err := process.ReadJSON(filepath.Join(dir, "spec.json"), &spec); err != nil {
		return tell(out, report{Error: err.Error()})
	}
	fd, err := spec.Pause.Open()
	if err != nil {
		return fail(out, dir, fmt.Errorf("the sandbox is gone: %w", err))
	}
	log, err := openLog(spec.Log)
	if err != nil {
		return fail(out, dir, err)
	}
	err = netns.Join(fd, spec.kinds(), func() error { return run(self, dir, spec, log, out) })
	_ = unix.Close(fd)
	if err != nil {
		return fail(out, dir, err)
	}
	return nil
}

func tell(w io.WriteCloser, r report) error {
	b, err := json.Marshal(r)
	if err == nil {
		_, err = w.Write(b)
	}
	_ = w.Close()
	return err
}

// fail records that the command never ran.
func fail(w io.WriteCloser, dir string, why error) error {
	err := process.WriteJSON(filepath.Join(dir, "exit.json"),
		exit{Code: CodeNotStarted, Finished: time.Now(), Reason: "StartError", Message: why.Error()})
	return errors.Join(err, tell(w, report{Error: why.Error()}))
}

// run starts the init stage from a thread that is in the pod's namespaces, and stays until it has ended: the stage is
// killed by the kernel when this thread dies. An error means that the command never ran.
func run(self []string, dir string, spec Spec, log *logFile, out io.WriteCloser) error {
	cmd := exec.Command(self[0], append(self[1:len(self):len(self)], "sandbox", "init-container")...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), Mark+"="+spec.Sandbox)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWNS}
	if !spec.SharePID && !spec.HostPID {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWPID
	}
	var pipes plumbing
	defer pipes.closeAll()
	if err := pipes.lay(cmd); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("init stage: %w", err)
	}
	pipes.closeTheirs()
	logged := log.follow(pipes.stdout, pipes.stderr)
	warnings, err := pipes.talk(spec)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return err
	}
	id, _ := process.Read(cmd.Process.Pid) // when it is gone already, Wait below says how it ended
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
	_ = tell(out, report{Process: id}) // nobody listens when the runtime is dead: no reason to stop
	_ = cmd.Wait()
	end := ending(cmd.ProcessState)
	select { // what it wrote last; a process that it left behind may hold the pipes for ever
	case <-logged:
	case <-time.After(time.Second):
	}
	end.Finished = time.Now()
	_ = process.WriteJSON(filepath.Join(dir, "exit.json"), end) // without it the exit code counts as unknown
	return nil
}

func ending(ps *os.ProcessState) exit {
	ws, ok := ps.Sys().(syscall.WaitStatus)
	switch {
	case ok && ws.Signaled():
		return exit{Code: 128 + int(ws.Signal()), Reason: "Error", Message: "killed by " + ws.Signal().String()}
	case ps.ExitCode() == 0:
		return exit{Reason: "Completed"}
	}
	return exit{Code: ps.ExitCode(), Reason: "Error"}
}

// plumbing is the pipes between a monitor and its init stage.
type plumbing struct {
	theirs, ours   []*os.File
	stdout, stderr *os.File
	spec, problem  *os.File
}

func (p *plumbing) lay(cmd *exec.Cmd) error {
	pair := func(theyWrite bool) (their, our *os.File, err error) {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, nil, err
		}
		their, our = r, w
		if theyWrite {
			their, our = w, r
		}
		p.theirs, p.ours = append(p.theirs, their), append(p.ours, our)
		return their, our, nil
	}
	var outEnd, errEnd, specEnd, problemEnd *os.File
	var e1, e2, e3, e4 error
	outEnd, p.stdout, e1 = pair(true)
	errEnd, p.stderr, e2 = pair(true)
	specEnd, p.spec, e3 = pair(false)
	problemEnd, p.problem, e4 = pair(true)
	if err := errors.Join(e1, e2, e3, e4); err != nil {
		return fmt.Errorf("pipes: %w", err)
	}
	cmd.Stdout, cmd.Stderr = outEnd, errEnd
	cmd.ExtraFiles = []*os.File{specEnd, problemEnd}
	return nil
}

// talk hands the spec to the stage and waits until it has become the command. Lines that begin with "warning: " are no
// reason to stop.
func (p *plumbing) talk(spec Spec) ([]string, error) {
	err := json.NewEncoder(p.spec).Encode(spec)
	_ = p.spec.Close()
	b, e := io.ReadAll(p.problem)
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

func (p *plumbing) closeTheirs() {
	for _, f := range p.theirs {
		_ = f.Close()
	}
}

func (p *plumbing) closeAll() {
	p.closeTheirs()
	for _, f := range p.ours {
		_ = f.Close()
	}
}
