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
	// maxOutput limits the recorded output of a plugin, in bytes.
	maxOutput = 1 << 20
	// waitDelay is how long children of a killed plugin may keep its output open.
	waitDelay = 500 * time.Millisecond
)

// program is a plugin's executable.
type program struct {
	typ, path string
	timeout   time.Duration
	// hangs counts the calls of each verb that timed out and were killed.
	mu        sync.Mutex
	hangs     map[string]int
	responses []response // of all calls
}

// hangsTooOften reports whether a verb has timed out too often to be called again.
func (p *program) hangsTooOften(verb string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hangs[verb] >= maxHangs
}

// record records a response.
func (p *program) record(a response) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a.hung {
		p.hangs[a.verb]++
	}
	p.responses = append(p.responses, a)
}

// maxHangs is the number of timeouts after which a verb is not executed any more.
const maxHangs = 2

// response is the outcome of one execution.
type response struct {
	verb           string
	exit           int
	stdout, stderr []byte
	hung           bool
	err            error // the program could not be executed
}

// run executes the plugin in a namespace.
func (p *program) run(ctx context.Context, ns *netns.NS, verb string, env []string, stdin []byte) (a response) {
	a = response{verb: verb, exit: -1}
	if p.hangsTooOften(verb) {
		a.hung = true
		return a
	}
	defer func() { p.record(a) }()
	cmd := exec.Command(p.path) // its own process group is killed, not only the process
	var stdout, stderr limitedBuffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	cmd.Env = append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "CNI_COMMAND=" + verb}, env...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = waitDelay
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
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have exited meanwhile
		err = <-done
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) && !a.hung {
		a.err = err
	}
	a.exit, a.stdout, a.stderr = cmd.ProcessState.ExitCode(), stdout.Bytes(), stderr.Bytes()
	return a
}

// limitedBuffer keeps the first maxOutput bytes.
type limitedBuffer struct{ bytes.Buffer }

func (l *limitedBuffer) Write(b []byte) (int, error) {
	if space := maxOutput - l.Len(); space > 0 {
		l.Buffer.Write(b[:min(space, len(b))])
	}
	return len(b), nil
}

func (a response) ok() bool { return a.err == nil && !a.hung && a.exit == 0 }

// failed reports whether the plugin exited with an error, without being killed.
func (a response) failed() bool { return a.err == nil && !a.hung && a.exit > 0 }

// cniError is the error object of the specification.
type cniError struct {
	CNIVersion string `json:"cniVersion"`
	Code       *int   `json:"code"`
	Msg        string `json:"msg"`
	Details    string `json:"details"`
}

// cniError parses the error object; nil if there is none.
func (a response) cniError() *cniError {
	var f cniError
	if err := decodeOne(a.stdout, &f); err != nil || f.Code == nil && f.Msg == "" {
		return nil
	}
	return &f
}

// code returns the error's code; 0 if there is none.
func (a response) code() int {
	if f := a.cniError(); f != nil && f.Code != nil {
		return *f.Code
	}
	return 0
}

// text returns the error's message and details, or the raw output.
func (a response) text() string {
	if f := a.cniError(); f != nil {
		return f.Msg + " " + f.Details
	}
	return string(a.stdout) + " " + string(a.stderr)
}

// String describes a response in a row of the report.
func (a response) String() string {
	switch {
	case a.err != nil:
		return fmt.Sprintf("%s cannot be executed: %v", a.verb, a.err)
	case a.hung:
		return a.verb + " timed out and was killed"
	case a.exit < 0:
		return fmt.Sprintf("%s was killed by a signal: %s", a.verb, short(string(a.stderr)))
	}
	output := "without output"
	if f := a.cniError(); f != nil {
		code := "no code"
		if f.Code != nil {
			code = fmt.Sprintf("code %d", *f.Code)
		}
		output = fmt.Sprintf("(%s): %s", code, short(strings.TrimSpace(f.Msg+" "+f.Details)))
	} else if len(bytes.TrimSpace(a.stdout)) > 0 {
		output = "and prints " + short(string(a.stdout))
	} else if len(bytes.TrimSpace(a.stderr)) > 0 {
		output = "and writes to standard error " + short(string(a.stderr))
	}
	return fmt.Sprintf("%s exits with %d %s", a.verb, a.exit, output)
}

// short converts a text to one line of limited length.
func short(s string) string {
	const size = 160
	s = normalize(strings.Join(strings.Fields(s), " "))
	if r := []rune(s); len(r) > size {
		return string(r[:size]) + "…"
	}
	return s
}

// decodeOne decodes exactly one JSON document.
func decodeOne(b []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("unexpected data after the document")
	}
	return nil
}
