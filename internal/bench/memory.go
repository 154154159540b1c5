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

// lastWords keeps a program from ending for 30 ms, while its memory is looked at. What wait4 tells (ru_maxrss) is no
// use: a child begins with the peak of the process that forked it, and the benchmark is larger than any plugin.
const lastWords = "inject=exit_group:delay_enter=30000"

// weighed is how many ADDs and DELs the memory pass makes.
const weighed = 3

// memoryPass notes the largest plugin process of an implementation, the shim's where there is an agent.
func (b *bench) memoryPass(ctx context.Context, w *world) error {
	w.exec.wrap = []string{b.cfg.Strace, "-f", "-qq", "-o", "/dev/null", "-e", "trace=exit_group", "-e", lastWords}
	defer func() { w.exec.wrap = nil }()
	programs, err := programsIn(w.impl.BinDir)
	if err != nil {
		return err
	}
	peak := 0.0
	looking, stop := context.WithCancel(ctx)
	var looker sync.WaitGroup
	looker.Go(func() {
		for ; looking.Err() == nil; time.Sleep(5 * time.Millisecond) {
			peak = max(peak, peakKB(programs))
		}
	})
	for range weighed {
		if err = w.cycle(ctx); err != nil {
			break
		}
	}
	stop()
	looker.Wait()
	b.samples.add(w.impl.Name, Cell{Pods: 1, Concurrency: 1}, "plugin_rss", "MiB", peak/1024)
	return err
}

// programsIn are the files that the entries of a directory stand for.
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

// peakKB is the largest peak of a running process of the programs, in KiB.
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

// statusKB is a figure of a process's status file, in KiB.
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
