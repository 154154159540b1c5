// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/sandbox"
	"github.com/weft-net/weft/internal/sandbox/process"
)

func newSandboxRunCmd(env ui.Env, f *sandboxFlags) *cobra.Command {
	var timeout time.Duration
	var wait bool
	cmd := &cobra.Command{
		Use:   "run FILE...",
		Short: "Run the pods of manifests (- is standard input) and wait until their containers have started",
		Long: "Creates the v1.Pod objects of the manifests in the runtime for --state-dir and prints each pod when its containers have\n" +
			"started. If no runtime is running, it starts one in the background, which ends after its last pod. Other kinds of\n" +
			"objects are ignored.",
		Example: "  weft sandbox run examples/web.yaml\n" +
			"  weft sandbox run --timeout 10s examples/web.yaml examples/db.yaml",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return ui.Misusef("for example `weft sandbox run examples/web.yaml`", "argument FILE is missing")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			c := sandbox.NewClient(f.stateDir)
			var pods []sandbox.AppliedPod
			for _, name := range args {
				more, err := runManifest(ctx, env, f, c, name)
				if err != nil {
					return err
				}
				pods = append(pods, more...)
			}
			if len(pods) == 0 {
				return model.Errorf(model.CodeInvalidConf, `a pod has "apiVersion: v1" and "kind: Pod"`,
					"no pod in %s", strings.Join(args, ", "))
			}
			if !wait {
				return nil
			}
			for _, p := range pods {
				if err := awaitPod(ctx, env, c, p, timeout); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "`DURATION` to wait for the containers")
	cmd.Flags().BoolVar(&wait, "wait", true, "wait until the containers have started")
	return cmd
}

func runManifest(
	ctx context.Context, env ui.Env, f *sandboxFlags, c *sandbox.Client, name string,
) ([]sandbox.AppliedPod, error) {
	b, err := readManifest(env, name)
	if err != nil {
		return nil, err
	}
	var out sandbox.ApplyResult
	for {
		if err := ensureServer(ctx, env, f, c); err != nil {
			return nil, err
		}
		out, err = c.Apply(ctx, b, name)
		var f *model.Error
		retry := errors.Is(err, sandbox.ErrNoServer) || errors.As(err, &f) && f.Code == model.CodeTryAgain
		if !retry {
			break
		}
		select { // the runtime is stopping, or a pod with the same name is terminating
		case <-ctx.Done():
			return nil, err
		case <-time.After(50 * time.Millisecond):
		}
	}
	if err != nil {
		return nil, err
	}
	for _, o := range out.Others {
		fmt.Fprintf(env.Stderr, "weft: note: %s: %s is not a pod and is ignored\n", name, o)
	}
	for _, p := range out.Pods {
		if len(p.Ignored) > 0 && p.Created {
			fmt.Fprintf(env.Stderr, "weft: note: pod %s/%s: ignored: %s\n", p.Namespace, p.Name, strings.Join(p.Ignored, ", "))
		}
	}
	return out.Pods, nil
}

func readManifest(env ui.Env, name string) ([]byte, error) {
	const limit = 4<<20 + 1
	in := env.Stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, ui.FileError("for example examples/web.yaml, or - for standard input", "manifest", name, err)
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, limit))
	if err != nil {
		return nil, fmt.Errorf("manifest %s: %w", name, err)
	}
	return b, nil
}

// ensureServer starts a runtime in the background if none is running.
func ensureServer(ctx context.Context, env ui.Env, f *sandboxFlags, c *sandbox.Client) error {
	if _, err := f.config(env); err != nil {
		return err
	}
	return startServer(ctx, env, f.stateDir, f.args(), c)
}

// resumeServer restarts a dead runtime that has left pods, with its previous flags.
func resumeServer(ctx context.Context, env ui.Env, f *sandboxFlags, c *sandbox.Client) error {
	if args, found := sandbox.Orphans(f.stateDir); found {
		return startServer(ctx, env, f.stateDir, args, c)
	}
	return nil
}

func startServer(ctx context.Context, env ui.Env, dir string, args []string, c *sandbox.Client) error {
	_, err := c.Status(ctx)
	if !errors.Is(err, sandbox.ErrNoServer) {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return model.Errorf(model.CodeIO, "choose another one with --state-dir, or run as root",
			"state directory %s is not writable: %w", dir, err)
	}
	if process.Locked(filepath.Join(dir, "lock")) { // another command is starting one, or the old one is stopping
		return awaitServer(ctx, c, dir, nil, "")
	}
	logPath := filepath.Join(dir, "serve.log")
	log, err := openServeLog(dir, logPath)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(env.Self, append([]string{"sandbox", "serve", "--until-idle"}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("sandbox runtime: %w", err)
	}
	fmt.Fprintf(
		env.Stderr, "weft: started a sandbox runtime for %s (process %d, log %s); it stops after its last pod\n",
		dir, cmd.Process.Pid, logPath)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return awaitServer(ctx, c, dir, ended, logPath)
}

// openServeLog opens the log of a background runtime, if the directory is empty or belongs to a runtime.
func openServeLog(dir, path string) (*os.File, error) {
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) > 0 {
		if _, err := os.Stat(filepath.Join(dir, "lock")); err != nil {
			if _, err := os.Stat(path); err != nil {
				return nil, model.Errorf(model.CodeInvalidConf, "choose an empty or a new directory with --state-dir",
					"state directory %s contains other files (%s)", dir, entries[0].Name())
			}
		}
	}
	log, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, model.Errorf(model.CodeIO, "choose another one with --state-dir, or run as root",
			"state directory %s is not writable: %w", dir, err)
	}
	return log, nil
}

// awaitServer waits until a runtime answers: this one, or one that another command started.
func awaitServer(ctx context.Context, c *sandbox.Client, dir string, ended <-chan error, log string) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	for {
		_, err := c.Status(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			if ended = nil; process.Locked(filepath.Join(dir, "lock")) {
				continue
			}
			b, _ := os.ReadFile(log)
			lines := strings.Split(strings.TrimSpace(string(b)), "\n")
			return fmt.Errorf("sandbox runtime failed to start: %s", strings.TrimPrefix(lines[len(lines)-1], "weft: "))
		case <-ctx.Done():
			return err
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// awaitPod waits until the containers have started, and prints why they have not.
func awaitPod(ctx context.Context, env ui.Env, c *sandbox.Client, p sandbox.AppliedPod, timeout time.Duration) error {
	name := p.Namespace + "/" + p.Name
	printed, last := "", ""
	err := c.Watch(ctx, p.Namespace, p.Name, func(d *sandbox.Detail) (bool, error) {
		if d == nil {
			return false, fmt.Errorf("pod %s was stopped", name)
		}
		last = reason(d.Pod)
		if last != printed && last != "" {
			fmt.Fprintf(env.Stderr, "weft: pod %s is waiting: %s\n", name, last)
			printed = last
		}
		if err := startError(d.Pod); err != nil {
			return false, err
		}
		if d.State == "Pending" {
			return false, nil
		}
		printPodLine(env.Stdout, d.Pod)
		return true, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		if last == "" {
			last = "its containers have not started"
		}
		return model.Errorf(model.CodeTryAgain, "the runtime keeps trying; see `weft sandbox inspect "+name+
			"`, stop it with `weft sandbox stop "+name+"`",
			"pod %s is not running after %v: %s", name, timeout, last)
	}
	return err
}

func reason(p sandbox.Pod) string {
	if p.Reason == "" {
		return ""
	}
	return p.Reason + ": " + p.Message
}

// startError returns the error of a container whose command cannot be started, which is permanent.
func startError(p sandbox.Pod) error {
	for _, c := range p.Containers {
		if c.State == "exited" && c.Reason == "StartError" {
			name := p.Namespace + "/" + p.Name
			return model.Errorf(model.CodeInvalidConf, "stop the pod, correct the manifest and run it again",
				"pod %s: container %s: %s", name, c.Name, c.Message)
		}
	}
	return nil
}

func printPodLine(w io.Writer, p sandbox.Pod) {
	fmt.Fprintf(w, "pod %s/%s %s", p.Namespace, p.Name, strings.ToLower(p.State))
	if len(p.IPs) > 0 {
		fmt.Fprintf(w, " %s", strings.Join(p.IPs, " "))
	}
	fmt.Fprintln(w)
}
