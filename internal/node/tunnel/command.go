// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weft-net/weft/internal/model"
)

const (
	// DefaultCommandTime limits a command's run, mostOutput the output that is kept, in bytes.
	DefaultCommandTime = time.Minute
	mostOutput         = 64 << 10
	// grace is how long to wait for the output of a command that ended: a child of its may have it open.
	grace = 2 * time.Second
)

// command runs a program as flannel does since 0.28: the command line is split at spaces, without quotes and shell, and
// $NAME and ${NAME} are replaced from the environment, env first. It returns the output without surrounding spaces.
// Standard input is one line.
func (r *Runner) command(ctx context.Context, command string, env []string, input string) (string, error) {
	words := strings.Fields(command)
	if len(words) == 0 {
		return "", model.Errorf(model.CodeInvalidConf, "name a program", "extension: command %q is empty", command)
	}
	all := slices.Concat(r.cfg.Env, env)
	for i := range words {
		words[i] = os.Expand(words[i], func(name string) string { return valueOf(all, name) })
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.CommandTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	// A process group of its own, so that its children end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = grace
	cmd.Env = all
	cmd.Stdin = strings.NewReader(input + "\n")
	var out, errs bounded
	cmd.Stdout, cmd.Stderr = &out, &errs
	start := cmd.Start
	if r.cfg.NS != nil {
		start = func() error { return r.cfg.NS.Do(cmd.Start) }
	}
	err := start()
	if err == nil {
		err = cmd.Wait()
	}
	if errors.Is(err, exec.ErrWaitDelay) { // it succeeded, but a child has the output open
		err = nil
	}
	if ctx.Err() != nil && err != nil {
		err = errors.Join(ctx.Err(), err)
	}
	if err != nil {
		said := strings.TrimSpace(errs.String() + " " + out.String())
		return "", fmt.Errorf("command %q: %w: %s", command, err, said)
	}
	return strings.TrimSpace(out.String()), nil
}

// valueOf returns a variable's value; the last one is used.
func valueOf(env []string, name string) string {
	for _, e := range slices.Backward(env) {
		if k, v, ok := strings.Cut(e, "="); ok && k == name {
			return v
		}
	}
	return ""
}

// bounded keeps the beginning of the output.
type bounded struct{ b bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	b.b.Write(p[:min(len(p), mostOutput-b.b.Len())])
	return len(p), nil
}

func (b *bounded) String() string { return b.b.String() }
