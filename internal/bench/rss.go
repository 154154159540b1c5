// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// delayExit delays a program's exit by 30 ms, so that its memory can be sampled. ru_maxrss of wait4 is unusable: a
// child inherits the peak of the process that forked it, and the benchmark is larger than any plugin.
const delayExit = "inject=exit_group:delay_enter=30000"

// rssSamples is the number of ADDs and DELs of the memory pass.
const rssSamples = 3

// rssPass records the peak RSS of the largest plugin process; with an agent that is the shim.
func (b *bench) rssPass(ctx context.Context, w *world) error {
	w.exec.wrap = []string{b.cfg.Strace, "-f", "-qq", "-o", "/dev/null", "-e", "trace=exit_group", "-e", delayExit}
	defer func() { w.exec.wrap = nil }()
	programs, err := programsIn(w.impl.BinDir)
	if err != nil {
		return err
	}
	peak := 0.0
	sampling, stop := context.WithCancel(ctx)
	var sampler sync.WaitGroup
	sampler.Go(func() {
		for ; sampling.Err() == nil; time.Sleep(5 * time.Millisecond) {
			peak = max(peak, peakKB(programs))
		}
	})
	for range rssSamples {
		if err = w.cycle(ctx); err != nil {
			break
		}
	}
	stop()
	sampler.Wait()
	b.samples.add(w.impl.Name, Cell{Pods: 1, Concurrency: 1}, "plugin_rss", "MiB", peak/1024)
	return err
}

// programsIn returns the files in a directory, with symbolic links resolved.
func programsIn(dir string) (map[string]bool, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("plugins: %w", err)
	}
	programs := map[string]bool{}
	for _, e := range entries {
		if file, err := filepath.EvalSymlinks(filepath.Join(dir, e.Name())); err == nil {
			programs[file] = true
		}
	}
	return programs, nil
}

// peakKB returns the largest peak RSS of the programs' running processes, in KiB.
func peakKB(programs map[string]bool) float64 {
	peak := 0.0
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		if exe, err := os.Readlink(dir + "/exe"); err != nil || !programs[exe] {
			continue
		}
		if kb, ok := statusKB(dir, "VmHWM"); ok {
			peak = max(peak, kb)
		}
	}
	return peak
}

// statusKB returns a field of a process's status file, in KiB.
func statusKB(dir, field string) (float64, bool) {
	b, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(b)) {
		var kb float64
		if _, err := fmt.Sscanf(line, field+": %f kB", &kb); err == nil {
			return kb, true
		}
	}
	return 0, false
}
