// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// traceFilter excludes nanosleep: the Go runtime's monitor thread polls with it, so its count depends on how slow
// strace is. This applies to every implementation and to the empty program.
const traceFilter = "trace=!nanosleep"

// traceSamples is the number of ADDs and DELs of the tracing pass, and of runs of the empty program.
const traceSamples = 10

// traceQuiet is how long the agent is left alone before its calls are counted: it deletes the links of the DEL before
// within that time, which is no work of the next call.
const traceQuiet = 100 * time.Millisecond

// scheduling are the calls by which the Go runtime runs its threads, whose number depends on how busy the host is, and
// how slow strace is: the calls that are left are the same in each ADD.
func scheduling() []string {
	return []string{
		"futex", "epoll_pwait", "sched_yield", "tgkill", "rt_sigreturn", "clone", "clone3", "sigaltstack", "rt_sigprocmask",
		"gettid", "getpid", "mmap", "munmap", "madvise", "sched_getaffinity",
	}
}

// traced is what strace saw.
type traced struct{ calls, execs, scheduling int }

func (t traced) plus(o traced) traced {
	return traced{t.calls + o.calls, t.execs + o.execs, t.scheduling + o.scheduling}
}

// work is the number of calls that are not the scheduler's.
func (t traced) work() int { return t.calls - t.scheduling }

// tracePass counts execs and syscalls of ADD and DEL under strace, in separate worlds.
func (b *bench) tracePass(ctx context.Context) error {
	if b.cfg.Strace == "" {
		b.notes = append(b.notes, "syscalls, execs and the plugins' memory were not counted: no strace")
		return nil
	}
	var base traced
	if b.cfg.Empty != "" {
		var all []traced
		for range traceSamples { // they vary by twenty, with the threads that the runtime starts
			n, err := b.traceEmpty(ctx)
			if err != nil {
				return err
			}
			all = append(all, n)
			b.samples.add("empty", Cell{Concurrency: 1}, "syscalls", "count", float64(n.calls))
		}
		slices.SortFunc(all, func(x, y traced) int { return cmp.Compare(x.calls, y.calls) })
		base = all[len(all)/2]
	} else {
		b.notes = append(b.notes, "add_syscalls_over_empty is missing: no --empty program")
	}
	measured := slices.DeleteFunc(slices.Clone(b.cfg.Impls), func(i Impl) bool { return i.Floor })
	worlds, err := b.worlds(ctx, "trace", 1, measured)
	defer closeAll(worlds)
	if err != nil {
		return err
	}
	for _, w := range worlds {
		if err := b.traceWorld(ctx, w, base); err != nil {
			return fmt.Errorf("%s: trace: %w", w.impl.Name, err)
		}
		if err := b.rssPass(ctx, w); err != nil {
			return fmt.Errorf("%s: memory: %w", w.impl.Name, err)
		}
	}
	return nil
}

func (b *bench) traceEmpty(ctx context.Context) (traced, error) {
	out := filepath.Join(b.dir, "empty.strace")
	if msg, err := exec.CommandContext(ctx, b.cfg.Strace, "-f", "-qq", "-e", traceFilter, "-o", out,
		b.cfg.Empty).CombinedOutput(); err != nil {
		return traced{}, fmt.Errorf("strace of %s: %w: %s", b.cfg.Empty, err, msg)
	}
	return countTrace(out, false)
}

func (b *bench) traceWorld(ctx context.Context, w *world, base traced) error {
	cell := Cell{Pods: 1, Concurrency: 1}
	for i := range traceSamples {
		p, err := w.newPod()
		if err != nil {
			return err
		}
		id := w.nextID()
		for _, verb := range []string{"add", "del"} {
			n, err := b.traceCall(ctx, w, fmt.Sprintf("%s-%d", verb, i), func() error {
				if verb == "add" {
					_, err := w.add(ctx, p, id)
					return err
				}
				_, err := w.del(ctx, p)
				return err
			})
			if err != nil {
				return err
			}
			b.samples.add(w.impl.Name, cell, verb+"_syscalls", "count", float64(n.calls))
			b.samples.add(w.impl.Name, cell, verb+"_execs", "count", float64(n.execs))
			if base.calls > 0 {
				b.samples.add(w.impl.Name, cell, verb+"_syscalls_over_empty", "count", float64(n.calls-base.calls))
				b.samples.add(w.impl.Name, cell, verb+"_syscalls_of_work", "count", float64(n.work()-base.work()))
			}
		}
		_ = p.ns.Close()
	}
	return nil
}

// traceCall runs one call with the plugins, and the agent if there is one, under strace.
func (b *bench) traceCall(ctx context.Context, w *world, name string, call func() error) (n traced, err error) {
	out := filepath.Join(b.dir, w.impl.Name+"-"+name)
	w.exec.wrap = []string{b.cfg.Strace, "-f", "-qq", "-e", traceFilter, "-A", "-o", out + ".plugin"}
	defer func() { w.exec.wrap = nil }()
	detach := func() error { return nil }
	if w.agent != nil {
		time.Sleep(traceQuiet)
		if detach, err = b.attachTo(ctx, w.agent.Process.Pid, out+".agent"); err != nil {
			return n, err
		}
	}
	err = call()
	time.Sleep(20 * time.Millisecond) // include the agent's work after its response
	if derr := detach(); err == nil {
		err = derr
	}
	if err != nil {
		return n, err
	}
	n, err = countTrace(out+".plugin", false)
	if err != nil || w.agent == nil {
		return n, err
	}
	more, err := countTrace(out+".agent", true)
	return n.plus(more), err
}

// attachTo attaches strace to all threads of a running process and returns a function that detaches it.
func (b *bench) attachTo(ctx context.Context, pid int, out string) (func() error, error) {
	cmd := exec.CommandContext(ctx, b.cfg.Strace, "-f", "-e", traceFilter, "-o", out, "-p", strconv.Itoa(pid))
	var stderr lockedBuffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("strace: %w", err)
	}
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if bytes.Contains(stderr.bytes(), []byte("attached")) {
			time.Sleep(20 * time.Millisecond)
			return func() error {
				_ = cmd.Process.Signal(syscall.SIGINT)
				_ = cmd.Wait() // strace exits with the signal that detached it
				return nil
			}, nil
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return nil, fmt.Errorf("strace: not attached to %d after 5 s: %s", pid, stderr.bytes())
}

// countTrace counts the syscalls and the successful execs in strace's output. Lines that resume an interrupted call and
// lines about signals and exits are not calls. If strace was attached to a running process, the call in which it finds a
// waiting thread is none either: the thread made it earlier.
func countTrace(path string, attached bool) (n traced, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return n, fmt.Errorf("trace: %w", err)
	}
	threads := map[string]bool{}
	for line := range bytes.Lines(b) {
		thread, rest, ok := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		rest = bytes.TrimSpace(rest)
		known := threads[string(thread)]
		threads[string(thread)] = true
		if attached && !known && bytes.HasSuffix(rest, []byte("<unfinished ...>")) {
			continue
		}
		if bytes.HasPrefix(rest, []byte("<... execve resumed>")) && bytes.HasSuffix(rest, []byte("= 0")) {
			n.execs++
		}
		if !ok || bytes.HasPrefix(rest, []byte("<... ")) || bytes.HasPrefix(rest, []byte("+++")) ||
			bytes.HasPrefix(rest, []byte("---")) || bytes.HasPrefix(rest, []byte("restart_syscall(")) {
			continue
		}
		n.calls++
		if name, _, _ := bytes.Cut(rest, []byte("(")); slices.Contains(scheduling(), string(name)) {
			n.scheduling++
		}
		if bytes.HasPrefix(rest, []byte("execve(")) && bytes.HasSuffix(rest, []byte("= 0")) {
			n.execs++
		}
	}
	return n, nil
}
