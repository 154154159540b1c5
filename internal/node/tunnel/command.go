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
	// DefaultCommandTime is how long a command may take, mostOutput how much of what it prints is kept.
	DefaultCommandTime = time.Minute
	mostOutput         = 64 << 10
	// grace is how long the output of a command that ended is waited for: a child that it left behind may hold it open.
	grace = 2 * time.Second
)

// command runs a program as flannel does since 0.28: the words are those between spaces, no quotes and no shell, and in
// each of them $NAME and ${NAME} are what the environment says, env first. What it prints is returned without the
// spaces around it. Standard input is one line.
func (r *Runner) command(ctx context.Context, command string, env []string, input string) (string, error) {
	words := strings.Fields(command)
	if len(words) == 0 {
		return "", model.Faultf(model.CodeInvalidConf, "name a program", "extension: command %q is empty", command)
	}
	all := slices.Concat(r.cfg.Env, env)
	for i := range words {
		words[i] = os.Expand(words[i], func(name string) string { return valueOf(all, name) })
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.CommandTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	// Its own group, so that what it has started ends with it.
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
	if errors.Is(err, exec.ErrWaitDelay) { // it ended well, only a child of its still holds the output
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

// valueOf is a variable's value; the last one counts.
func valueOf(env []string, name string) string {
	for _, e := range slices.Backward(env) {
		if k, v, ok := strings.Cut(e, "="); ok && k == name {
			return v
		}
	}
	return ""
}

// bounded keeps the beginning of what is written.
type bounded struct{ b bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	b.b.Write(p[:min(len(p), mostOutput-b.b.Len())])
	return len(p), nil
}

func (b *bounded) String() string { return b.b.String() }
