// SPDX-License-Identifier: Apache-2.0

package leaks_test

import (
	"bufio"
	"bytes"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weft-net/weft/internal/nettest"
)

// agent is the process of a weft agent.
type agent struct {
	cmd  *exec.Cmd
	log  log
	dead chan struct{}
}

// startAgent starts an agent and waits until it is ready.
func (n *node) startAgent() *agent {
	n.t.Helper()
	a := &agent{dead: make(chan struct{})}
	a.cmd = exec.Command(nettest.Programs(n.t)+"/weft-agent", "agent", "--node", "n1", "--socket", n.dir+"/cni.sock",
		"--state-dir", n.dir+"/state")
	a.cmd.Stderr = &a.log
	out, err := a.cmd.StdoutPipe()
	if err == nil {
		err = a.cmd.Start()
	}
	if err != nil {
		n.t.Fatal(err)
	}
	ready := make(chan bool, 1)
	go func() {
		line, _ := bufio.NewReader(out).ReadString('\n')
		ready <- strings.TrimSpace(line) == "ready"
		_ = a.cmd.Wait()
		close(a.dead)
	}()
	n.t.Cleanup(func() { a.stop() })
	select {
	case ok := <-ready:
		if !ok {
			n.t.Fatalf("agent: %s", a.log.String())
		}
	case <-time.After(time.Minute):
		n.t.Fatalf("the agent is not ready after a minute: %s", a.log.String())
	}
	return a
}

// stop stops the agent as a service manager does.
func (a *agent) stop() {
	_ = a.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-a.dead:
	case <-time.After(10 * time.Second):
		a.kill()
	}
}

// kill sends SIGKILL.
func (a *agent) kill() {
	_ = a.cmd.Process.Kill()
	<-a.dead
}

// log collects an agent's log.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
