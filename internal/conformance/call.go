// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weft-net/weft/internal/netns"
)

// The verbs.
const (
	add     = "ADD"
	del     = "DEL"
	check   = "CHECK"
	status  = "STATUS"
	gc      = "GC"
	version = "VERSION"
)

const (
	// maxOutput bounds what is kept of a plugin's output, bytes.
	maxOutput = 1 << 20
	// lastWords is how long a killed plugin's children may hold its output open.
	lastWords = 500 * time.Millisecond
)

// program is a plugin's file, and how it is executed.
type program struct {
	typ, path string
	timeout   time.Duration
	// hung counts the calls of each verb that had to be killed: a plugin that hangs is not waited for again and again.
	mu   sync.Mutex
	hung map[string]int
	said []answer // everything that it has answered
}

// hopeless tells whether a verb has hung often enough.
func (p *program) hopeless(verb string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hung[verb] >= enoughHangs
}

// keep remembers an answer.
func (p *program) keep(a answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a.hung {
		p.hung[a.verb]++
	}
	p.said = append(p.said, a)
}

// enoughHangs is after how many hanging calls a verb is not executed any more.
const enoughHangs = 2

// answer is what an execution has left.
type answer struct {
	verb           string
	exit           int
	stdout, stderr []byte
	hung           bool
	err            error // it could not be executed
}

// run executes the plugin in a namespace.
func (p *program) run(ctx context.Context, ns *netns.NS, verb string, env []string, stdin []byte) (a answer) {
	a = answer{verb: verb, exit: -1}
	if p.hopeless(verb) {
		a.hung = true
		return a
	}
	defer func() { p.keep(a) }()
	cmd := exec.Command(p.path) // its own process group is killed, not only the process
	var stdout, stderr limited
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	cmd.Env = append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "CNI_COMMAND=" + verb}, env...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = lastWords
	if a.err = ns.Do(cmd.Start); a.err != nil {
		return a
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	timer := time.NewTimer(p.timeout)
	defer timer.Stop()
	var err error
	select {
	case err = <-done:
	case <-timer.C:
		a.hung = true
	case <-ctx.Done():
		a.hung = true
	}
	if a.hung {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may just have ended
		err = <-done
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) && !a.hung {
		a.err = err
	}
	a.exit, a.stdout, a.stderr = cmd.ProcessState.ExitCode(), stdout.Bytes(), stderr.Bytes()
	return a
}

// limited keeps the beginning of what is written.
type limited struct{ bytes.Buffer }

func (l *limited) Write(b []byte) (int, error) {
	if room := maxOutput - l.Len(); room > 0 {
		l.Buffer.Write(b[:min(room, len(b))])
	}
	return len(b), nil
}

func (a answer) ok() bool { return a.err == nil && !a.hung && a.exit == 0 }

// refused tells whether the plugin ended by itself and said no.
func (a answer) refused() bool { return a.err == nil && !a.hung && a.exit > 0 }

// fault is the protocol's error object.
type fault struct {
	CNIVersion string `json:"cniVersion"`
	Code       *int   `json:"code"`
	Msg        string `json:"msg"`
	Details    string `json:"details"`
}

// fault reads the error object; nil when there is none.
func (a answer) fault() *fault {
	var f fault
	if err := one(a.stdout, &f); err != nil || f.Code == nil && f.Msg == "" {
		return nil
	}
	return &f
}

// code is the error's code, 0 without one.
func (a answer) code() int {
	if f := a.fault(); f != nil && f.Code != nil {
		return *f.Code
	}
	return 0
}

// text is the whole of what an answer says of a failure.
func (a answer) text() string {
	if f := a.fault(); f != nil {
		return f.Msg + " " + f.Details
	}
	return string(a.stdout) + " " + string(a.stderr)
}

// String is an answer in a row.
func (a answer) String() string {
	switch {
	case a.err != nil:
		return fmt.Sprintf("%s cannot be executed: %v", a.verb, a.err)
	case a.hung:
		return a.verb + " does not end, and was killed"
	case a.exit < 0:
		return fmt.Sprintf("%s died of a signal: %s", a.verb, short(string(a.stderr)))
	}
	said := "and says nothing"
	if f := a.fault(); f != nil {
		code := "no code"
		if f.Code != nil {
			code = fmt.Sprintf("code %d", *f.Code)
		}
		said = fmt.Sprintf("(%s): %s", code, short(strings.TrimSpace(f.Msg+" "+f.Details)))
	} else if len(bytes.TrimSpace(a.stdout)) > 0 {
		said = "and prints " + short(string(a.stdout))
	} else if len(bytes.TrimSpace(a.stderr)) > 0 {
		said = "and writes to standard error " + short(string(a.stderr))
	}
	return fmt.Sprintf("%s exits with %d %s", a.verb, a.exit, said)
}

// short makes a line of a text.
func short(s string) string {
	const most = 160
	s = tidy(strings.Join(strings.Fields(s), " "))
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

// one decodes exactly one JSON document.
func one(b []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something stands after the document")
	}
	return nil
}
