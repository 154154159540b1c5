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
	f.StringVar(dir, "dir", defaultVMDir, "`DIR` where machines that run are remembered")
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

func bytesReader(b []byte) io.Reader { return bytes.NewReader(b) }

// resolver is what the pod's resolv.conf says: the cluster's, or the node's.
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

// readResolver reads a resolv.conf. A name server on the node's own loopback is none for a guest.
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

// watchOver starts the process that takes a machine away when this one is killed.
func watchOver(env ui.Env, dir string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	cmd := exec.Command(env.Self, "vm", "watch", dir)
	cmd.Stdin, cmd.Dir, cmd.Env = r, "/", os.Environ()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("watch over the machine: %w", err)
	}
	go func() {
		_ = cmd.Wait()
		_ = w.Close() // which nobody else has: it ends with this process
	}()
	return nil
}

// vmWatch waits until the process that started it has ended, and takes away what that has left.
func vmWatch(ctx context.Context, env ui.Env, dir string) error {
	st, found, err := launch.Read(dir) // that process has claimed the machine before
	if err != nil || !found {
		return err
	}
	_, _ = io.Copy(io.Discard, env.Stdin)
	// The kernel closes what a process had open before it says that the process is gone: on a busy machine long before.
	if err := st.Runner.Wait(ctx); err != nil {
		return err
	}
	return vmTidy(context.WithoutCancel(ctx), env, st)
}

// vmTidy takes away what is left of a machine whose runner was killed. The hypervisor has died with that.
func vmTidy(ctx context.Context, env ui.Env, st launch.Status) error {
	unlock, err := lockMachines(ctx, st.Dir)
	if err != nil {
		return err
	}
	defer func() { _ = unlock.Close() }()
	now, found, err := launch.Read(st.Dir)
	if err != nil || !found || now.Phase != launch.Dead || now.Runner != st.Runner { // somebody was quicker
		return err
	}
	st = now
	fmt.Fprintf(env.Stderr, "weft: taking away what is left of machine %s\n", st.Key())
	if err := vmLeave(ctx, st); err != nil {
		return err
	}
	if st.Runtime != "" {
		if err := vmStopPod(ctx, env, st); err != nil {
			return err
		}
	}
	return launch.Forget(st.Dir)
}

// vmLeave gives a pod its network back.
func vmLeave(ctx context.Context, st launch.Status) error {
	h, err := host.Open(ctx, host.Config{Socket: st.Agent, Dir: st.Records, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer func() { _ = h.Close() }()
	var pod host.Pod
	if ns, err := netns.Open(st.Netns); err == nil { // else it went with the pod
		defer func() { _ = ns.Close() }()
		pod.NS = ns
	}
	return h.Stop(ctx, pod, st.Key())
}

// background runs the machine in a process of its own and waits until it runs.
func (r *vmRun) background(ctx context.Context, args []string, dir string, text []byte, vm model.VM) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return model.Faultf(model.CodeIO, "run as root, or choose another directory with --dir", "machine %s: %w",
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
	said := map[string]bool{}
	for {
		for _, line := range waits(head(log)) { // what it waits for, as it happens
			if !said[line] {
				said[line] = true
				fmt.Fprintln(r.env.Stderr, line)
			}
		}
		st, found, err := launch.Read(dir)
		if err == nil && found && st.Phase == launch.Running {
			for _, note := range notes(head(log)) {
				fmt.Fprintln(r.env.Stderr, note)
			}
			fmt.Fprintf(r.env.Stdout, "machine %s runs in pod %s\n", st.Key(), st.Pod)
			return nil
		}
		select {
		case <-ctx.Done():
			_ = cmd.Process.Signal(syscall.SIGTERM)
			<-ended
			return ctx.Err()
		case err := <-ended:
			return errors.Join(logged(vm, head(log), err), abandon(ctx, r.env, dir))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// head is what a log begins with.
func head(log io.ReaderAt) string {
	b := make([]byte, 1<<16)
	n, _ := log.ReadAt(b, 0)
	return string(b[:n])
}

// waits are the whole lines that say what a background process waits for.
func waits(text string) []string {
	lines := strings.Split(text, "\n")
	return slices.DeleteFunc(lines[:len(lines)-1], func(s string) bool {
		return !strings.HasPrefix(s, "weft: pod ") || !strings.Contains(s, " waits: ")
	})
}

// notes are what whoever started a background process is to know: a disk that is left out, for instance. That the pod
// around the machine has no image of its own is always so.
func notes(text string) []string {
	return slices.DeleteFunc(strings.Split(text, "\n"), func(s string) bool {
		return !strings.HasPrefix(s, "weft: note: ") || strings.HasPrefix(s, "weft: note: pod ")
	})
}

// logged is the error of a background process that has ended, in its own words.
func logged(vm model.VM, text string, err error) error {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	hint := ""
	if rest, ok := strings.CutPrefix(lines[len(lines)-1], "hint: "); ok {
		hint, lines = rest, lines[:len(lines)-1]
	}
	if len(lines) == 0 || lines[len(lines)-1] == "" {
		return fmt.Errorf("machine %s ended at once: %w", vm.Key(), errors.Join(err))
	}
	return model.Faultf(model.CodeInvalidEnv, hint, "%s", strings.TrimPrefix(lines[len(lines)-1], "weft: "))
}

// foreground are the arguments of the same command without --detach.
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

// vmStopPod stops a pod by the runtime that has it; one that is gone is no error.
func vmStopPod(ctx context.Context, env ui.Env, st launch.Status) error {
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
