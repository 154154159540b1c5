// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
)

// process is a program that ends with the test.
type process struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

func (s *Server) run(name string, args ...string) *process {
	s.t.Helper()
	p := &process{
		cmd: exec.Command(filepath.Join(s.bin, name), args...), log: s.path(name + ".log"), done: make(chan struct{}),
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Dir = log, log, s.dir
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error, 1)
	go p.run(s.inNamespace, started)
	if err := <-started; err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(p.kill)
	return p
}

// run starts the process and waits for its end on one thread: the kernel kills the process when the thread that started
// it ends.
func (p *process) run(inside func(func() error) error, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if os.Getpid() == syscall.Gettid() { // the main thread enters no namespace
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.run(inside, started)
		}()
		<-done
		return
	}
	defer close(p.done)
	err := inside(p.cmd.Start)
	started <- err
	if err == nil {
		_ = p.cmd.Wait()
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

func (p *process) dead() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *process) tail() string {
	b, _ := os.ReadFile(p.log)
	return string(b[max(0, len(b)-3000):])
}
