// SPDX-License-Identifier: Apache-2.0

// Package foreign executes the CNI plugins that weft has not built in, by the protocol: environment, configuration on
// standard input, result or error object on standard output.
package foreign

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/model"
)

const (
	// maxStdout bounds what a plugin may answer, maxStderr what of its complaints is kept for the error. Bytes.
	maxStdout = 1 << 20
	maxStderr = 4 << 10
	// DefaultTimeout is how long a plugin may take.
	DefaultTimeout = 90 * time.Second
	// A plugin file that is just being written ("text file busy") is tried again.
	busyTries = 20
	busyWait  = 100 * time.Millisecond
	// lastWords is how long a killed plugin's children may hold its output open.
	lastWords = time.Second
)

// Runner executes plugins.
type Runner struct {
	// Env is the environment plugins inherit; its CNI_ variables are not handed on.
	Env []string
	// Stderr gets what plugins write there; nil drops it.
	Stderr io.Writer
	// Timeout is how long one execution may take; 0 means DefaultTimeout.
	Timeout time.Duration
	// Root is where the node's file system is seen, when this process has another: plugins are executed among the node's
	// files, with the paths that the runtime means. Empty is this process' own.
	Root string
}

// Call is one execution.
type Call struct {
	Verb    string
	Type    string
	Request model.Request
	Conf    []byte // standard input
}

// Find gives the path of a plugin's program.
func (r *Runner) Find(pluginType string, dirs []string) (string, error) {
	if err := cni.CheckType(pluginType); err != nil {
		return "", model.Faultf(model.CodeInvalidConf, "", "plugin type %w", err)
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, pluginType)
		if r.executable(path) {
			return path, nil
		}
	}
	return "", model.Faultf(model.CodeInvalidConf, "install it there, or correct the configuration",
		"plugin %q: no such program in %q", pluginType, strings.Join(dirs, ":"))
}

// Run executes a plugin and gives what it printed. The error has the plugin's own code.
func (r *Runner) Run(ctx context.Context, c Call) ([]byte, error) {
	path, err := r.Find(c.Type, c.Request.CNIPath)
	if err != nil {
		return nil, err
	}
	timeout := r.Timeout
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for try := 0; ; try++ {
		out, err := r.once(ctx, path, c)
		if !errors.Is(err, syscall.ETXTBSY) || try == busyTries {
			return out, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(busyWait):
		}
	}
}

// once runs the program on a thread of its own kind: the plugin dies with weft (Pdeathsig), so that a restarted weft
// never undoes an ADD that is still running; the kernel ties that to the thread, which therefore must outlive it.
func (r *Runner) once(ctx context.Context, path string, c Call) ([]byte, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	stdout, stderr := &bounded{most: maxStdout}, &bounded{most: maxStderr}
	cmd := exec.CommandContext(ctx, path)
	cmd.Env = r.environ(c)
	cmd.Stdin = bytes.NewReader(c.Conf)
	cmd.Stdout, cmd.Stderr = stdout, io.Writer(stderr)
	if r.Stderr != nil {
		cmd.Stderr = io.MultiWriter(stderr, r.Stderr)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if r.Root != "" {
		cmd.SysProcAttr.Chroot, cmd.Dir = r.Root, "/"
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = lastWords
	err := cmd.Run()
	switch {
	case err == nil && stdout.over:
		return nil, model.Faultf(model.CodeDecode, "", "plugin %s %s: answer longer than %d bytes", c.Type, c.Verb, maxStdout)
	case err == nil:
		return stdout.kept, nil
	case ctx.Err() != nil:
		return nil, model.Faultf(model.CodeTryAgain, "", "plugin %s %s: no answer in time: %w", c.Type, c.Verb, ctx.Err())
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return nil, model.Faultf(model.CodeForeign, "", "plugin %s %s: %w", c.Type, c.Verb, err)
	}
	if f, ok := cni.ParseError(stdout.kept); ok {
		return nil, &model.Fault{
			Code: f.Code, Msg: fmt.Sprintf("plugin %s %s: %s", c.Type, c.Verb, f.Msg), Hint: f.Hint, Err: f,
		}
	}
	return nil, model.Faultf(model.CodeForeign, "", "plugin %s %s: %w: %s", c.Type, c.Verb, err,
		bytes.TrimSpace(stderr.kept))
}

func (r *Runner) environ(c Call) []string {
	env := make([]string, 0, len(r.Env)+6)
	for _, kv := range r.Env {
		if !strings.HasPrefix(kv, "CNI_") {
			env = append(env, kv)
		}
	}
	args := make([]string, 0, len(c.Request.Args))
	for _, kv := range c.Request.Args {
		args = append(args, kv[0]+"="+kv[1])
	}
	env = append(env, "CNI_COMMAND="+c.Verb, "CNI_PATH="+strings.Join(c.Request.CNIPath, string(os.PathListSeparator)))
	if c.Verb == cni.GC || c.Verb == cni.Status {
		return env
	}
	return append(env, "CNI_CONTAINERID="+c.Request.ContainerID, "CNI_NETNS="+c.Request.Netns,
		"CNI_IFNAME="+c.Request.IfName, "CNI_ARGS="+strings.Join(args, ";"))
}

// bounded keeps the first bytes written to it and swallows the others.
type bounded struct {
	kept []byte
	most int
	over bool
}

// Write never fails: a plugin that talks too much is not stopped by a full pipe.
func (b *bounded) Write(p []byte) (int, error) {
	keep := min(len(p), b.most-len(b.kept))
	b.over = b.over || keep < len(p)
	b.kept = append(b.kept, p[:keep]...)
	return len(p), nil
}
