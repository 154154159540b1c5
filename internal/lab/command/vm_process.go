// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/sandbox"
	"github.com/weft-net/weft/internal/vm/host"
	"github.com/weft-net/weft/internal/vm/launch"
)

func vmDirFlag(f *pflag.FlagSet, dir *string) {
	f.StringVar(dir, "dir", defaultVMDir, "state `DIR` of running VMs")
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

func bytesReader(b []byte) io.Reader { return bytes.NewReader(b) }

// resolver returns the pod's resolver: the cluster's, or the node's.
func (r *vmRun) resolver(vm model.VM) model.DNS {
	if len(r.pods.clusterDNS) > 0 {
		d := r.pods.domain
		return model.DNS{Nameservers: r.pods.clusterDNS, Search: []string{vm.Namespace + ".svc." + d, "svc." + d, d}}
	}
	f, err := os.Open("/etc/resolv.conf")
	if err != nil {
		return model.DNS{}
	}
	defer func() { _ = f.Close() }()
	return readResolver(f)
}

// readResolver reads a resolv.conf. It skips name servers on the node's loopback, which a guest cannot reach.
func readResolver(r io.Reader) (d model.DNS) {
	for s := bufio.NewScanner(r); s.Scan(); {
		f := strings.Fields(s.Text())
		switch {
		case len(f) < 2:
		case f[0] == "nameserver":
			if a, err := netip.ParseAddr(f[1]); err == nil && !a.IsLoopback() {
				d.Nameservers = append(d.Nameservers, a.String())
			}
		case f[0] == "search":
			d.Search = f[1:]
		}
	}
	return d
}

// startWatcher starts a process that cleans up the VM if this process is killed.
func startWatcher(env ui.Env, dir string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	cmd := exec.Command(env.Self, "vm", "watch", dir)
	cmd.Stdin, cmd.Dir, cmd.Env = r, "/", os.Environ()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("watcher of the VM: %w", err)
	}
	go func() {
		_ = cmd.Wait()
		_ = w.Close() // no other process has this end: the kernel closes it when this process dies
	}()
	return nil
}

// vmWatch waits until the process that started it has exited, and cleans up its VM.
func vmWatch(ctx context.Context, env ui.Env, dir string) error {
	st, found, err := launch.Read(dir) // that process has claimed the VM before
	if err != nil || !found {
		return err
	}
	_, _ = io.Copy(io.Discard, env.Stdin)
	// The kernel closes a process's files before the process counts as dead; on a busy host, long before.
	if err := st.Runner.Wait(ctx); err != nil {
		return err
	}
	return removeDeadVM(context.WithoutCancel(ctx), env, st)
}

// removeDeadVM removes a VM whose runner was killed. Its hypervisor has died with the runner.
func removeDeadVM(ctx context.Context, env ui.Env, st launch.Status) error {
	unlock, err := lockVMs(ctx, st.Dir)
	if err != nil {
		return err
	}
	defer func() { _ = unlock.Close() }()
	now, found, err := launch.Read(st.Dir)
	if err != nil || !found || now.Phase != launch.Dead || now.Runner != st.Runner { // another process has removed it
		return err
	}
	st = now
	fmt.Fprintf(env.Stderr, "weft: cleaning up VM %s\n", st.Key())
	if err := restorePod(ctx, st); err != nil {
		return err
	}
	if st.Runtime != "" {
		if err := stopVMPod(ctx, env, st); err != nil {
			return err
		}
	}
	return launch.RemoveDir(st.Dir)
}

// restorePod restores the network of the VM's pod.
func restorePod(ctx context.Context, st launch.Status) error {
	h, err := host.Open(ctx, host.Config{Socket: st.Agent, Dir: st.Records, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer func() { _ = h.Close() }()
	var pod host.Pod
	if ns, err := netns.Open(st.Netns); err == nil { // otherwise the pod is gone
		defer func() { _ = ns.Close() }()
		pod.NS = ns
	}
	return h.Stop(ctx, pod, st.Key())
}

// background runs the VM in a background process and waits until it is running.
func (r *vmRun) background(ctx context.Context, args []string, dir string, text []byte, vm model.VM) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return model.Errorf(model.CodeIO, "run as root, or choose another directory with --dir", "VM %s: %w",
			vm.Key(), err)
	}
	file := filepath.Join(dir, "manifest.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(dir, "run.log"), os.O_CREATE|os.O_TRUNC|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(r.env.Self, append(args, file)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	printed := map[string]bool{}
	for {
		for _, line := range waiting(head(log)) {
			if !printed[line] {
				printed[line] = true
				fmt.Fprintln(r.env.Stderr, line)
			}
		}
		st, found, err := launch.Read(dir)
		if err == nil && found && st.Phase == launch.Running {
			for _, note := range notes(head(log)) {
				fmt.Fprintln(r.env.Stderr, note)
			}
			fmt.Fprintf(r.env.Stdout, "VM %s is running in pod %s\n", st.Key(), st.Pod)
			return nil
		}
		select {
		case <-ctx.Done():
			_ = cmd.Process.Signal(syscall.SIGTERM)
			<-ended
			return ctx.Err()
		case err := <-ended:
			return errors.Join(loggedError(vm, head(log), err), cleanUpVM(ctx, r.env, dir))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// head returns the beginning of a log.
func head(log io.ReaderAt) string {
	b := make([]byte, 1<<16)
	n, _ := log.ReadAt(b, 0)
	return string(b[:n])
}

// waiting returns the complete lines of a background process's log about a pod that is waiting.
func waiting(text string) []string {
	lines := strings.Split(text, "\n")
	return slices.DeleteFunc(lines[:len(lines)-1], func(s string) bool {
		return !strings.HasPrefix(s, "weft: pod ") || !strings.Contains(s, " is waiting: ")
	})
}

// notes returns the notes in a background process's log, for example about a disk that is skipped. It skips the note that
// the image of the VM's pod is ignored, which applies to all VMs.
func notes(text string) []string {
	return slices.DeleteFunc(strings.Split(text, "\n"), func(s string) bool {
		return !strings.HasPrefix(s, "weft: note: ") || strings.HasPrefix(s, "weft: note: pod ")
	})
}

// loggedError returns the error in the log of a background process that has exited.
func loggedError(vm model.VM, text string, err error) error {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	hint := ""
	if rest, ok := strings.CutPrefix(lines[len(lines)-1], "hint: "); ok {
		hint, lines = rest, lines[:len(lines)-1]
	}
	if len(lines) == 0 || lines[len(lines)-1] == "" {
		return fmt.Errorf("VM %s failed to start: %w", vm.Key(), errors.Join(err))
	}
	return model.Errorf(model.CodeInvalidEnv, hint, "%s", strings.TrimPrefix(lines[len(lines)-1], "weft: "))
}

// foreground returns the arguments of the same command without --detach.
func foreground(f *pflag.FlagSet) []string {
	out := []string{"vm", "run"}
	f.Visit(func(f *pflag.Flag) {
		if f.Name == "detach" {
			return
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		} else if f.Value.Type() == "stringToString" {
			values[0] = strings.Trim(values[0], "[]")
		}
		for _, v := range values {
			out = append(out, "--"+f.Name+"="+v)
		}
	})
	return out
}

// stopVMPod stops a VM's pod, if it exists.
func stopVMPod(ctx context.Context, env ui.Env, st launch.Status) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	f := &sandboxFlags{stateDir: st.Runtime}
	c := sandbox.NewClient(st.Runtime)
	if err := resumeServer(ctx, env, f, c); err != nil {
		return err
	}
	namespace, name := podName(st.Pod, "")
	list, err := c.List(ctx)
	if errors.Is(err, sandbox.ErrNoServer) {
		return nil
	}
	for _, p := range list {
		if p.Namespace == namespace && p.Name == name {
			quiet := env
			quiet.Stdout = quiet.Stderr
			s := stopFlags{wait: true}
			return s.stop(ctx, quiet, c, []string{st.Pod}, nil)
		}
	}
	return err
}
