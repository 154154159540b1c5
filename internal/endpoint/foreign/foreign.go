// SPDX-License-Identifier: Apache-2.0

// Package foreign executes CNI plugins that are not built into weft, by the CNI protocol: environment, configuration on
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
	// maxStdout bounds a plugin's result, maxStderr the part of its stderr that is kept for the error. Bytes.
	maxStdout = 1 << 20
	maxStderr = 4 << 10
	// DefaultTimeout bounds the execution of a plugin.
	DefaultTimeout = 90 * time.Second
	// A plugin file that is being written ("text file busy") is retried.
	busyTries = 20
	busyWait  = 100 * time.Millisecond
	// outputGrace is how long a killed plugin's children may hold its output open.
	outputGrace = time.Second
)

// Runner executes plugins.
type Runner struct {
	// Env is the environment that plugins inherit, without its CNI_ variables.
	Env []string
	// Stderr receives the plugins' stderr; nil drops it.
	Stderr io.Writer
	// Timeout bounds one execution; 0 means DefaultTimeout.
	Timeout time.Duration
	// Root is the path of the node's root file system, if this process has another one: plugins are executed with chroot
	// there, so that the runtime's paths are valid. Empty is this process' own root.
	Root string
}

// Call is one execution.
type Call struct {
	Verb    string
	Type    string
	Request model.Request
	Conf    []byte // standard input
}

// Find returns the path of a plugin's program.
func (r *Runner) Find(pluginType string, dirs []string) (string, error) {
	if err := cni.CheckType(pluginType); err != nil {
		return "", model.Errorf(model.CodeInvalidConf, "", "plugin type %w", err)
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, pluginType)
		if r.executable(path) {
			return path, nil
		}
	}
	return "", model.Errorf(model.CodeInvalidConf, "install it there, or correct the configuration",
		"plugin %q: no such program in %q", pluginType, strings.Join(dirs, ":"))
}

// Run executes a plugin and returns its stdout. The error has the plugin's own code.
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

// once runs the program once. The plugin dies with weft (Pdeathsig), so that a restarted weft never undoes an ADD that
// is still running. The kernel ties Pdeathsig to the thread, which is therefore locked until the plugin has ended.
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
	cmd.WaitDelay = outputGrace
	err := cmd.Run()
	switch {
	case err == nil && stdout.over:
		return nil, model.Errorf(model.CodeDecode, "", "plugin %s %s: answer longer than %d bytes", c.Type, c.Verb, maxStdout)
	case err == nil:
		return stdout.kept, nil
	case ctx.Err() != nil:
		return nil, model.Errorf(model.CodeTryAgain, "", "plugin %s %s: no answer in time: %w", c.Type, c.Verb, ctx.Err())
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return nil, model.Errorf(model.CodeForeign, "", "plugin %s %s: %w", c.Type, c.Verb, err)
	}
	if f, ok := cni.ParseError(stdout.kept); ok {
		return nil, &model.Error{
			Code: f.Code, Msg: fmt.Sprintf("plugin %s %s: %s", c.Type, c.Verb, f.Msg), Hint: f.Hint, Err: f,
		}
	}
	return nil, model.Errorf(model.CodeForeign, "", "plugin %s %s: %w: %s", c.Type, c.Verb, err,
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

// bounded keeps the first bytes written to it and discards the rest.
type bounded struct {
	kept []byte
	most int
	over bool
}

// Write never fails, so that a plugin with a lot of output does not block on a full pipe.
func (b *bounded) Write(p []byte) (int, error) {
	keep := min(len(p), b.most-len(b.kept))
	b.over = b.over || keep < len(p)
	b.kept = append(b.kept, p[:keep]...)
	return len(p), nil
}
