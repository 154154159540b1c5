// SPDX-License-Identifier: Apache-2.0

package install

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/nettest"
)

// TestKilled kills weft install, and weft install --remove, at random moments. Each name always has its old or its new
// content, other vendors' programs are never lost, and the next run completes what the killed one began. WEFT_KILLS is
// the number of kills.
func TestKilled(t *testing.T) {
	kills, err := strconv.Atoi(os.Getenv("WEFT_KILLS"))
	if err != nil {
		kills = 60
	}
	c := newDirs(t)
	c.Plugins, c.Replace = allPlugins(), true
	bin, conf := listing(t, c.BinDir), listing(t, c.ConfDir)
	install(t, c)
	allowed := either(bin, listing(t, c.BinDir))
	allowedConf := either(conf, listing(t, c.ConfDir))
	remove(t, c)

	in := []string{"install", "--cni-bin-dir", c.BinDir, "--conf-dir", c.ConfDir, "--plugins", "--replace-foreign"}
	out := []string{"install", "--cni-bin-dir", c.BinDir, "--conf-dir", c.ConfDir, "--remove"}
	start := quickest(t, "--version")
	whole := max(quickest(t, in...), quickest(t, out...)) + start/4
	if err := exec.Command(weftProgram(t), in...).Run(); err != nil {
		t.Fatal(err)
	}
	maps.Copy(allowed, either(bin, listing(t, c.BinDir))) // --plugins has more names than c.Plugins
	live, aim := 0, nettest.NewAim(whole-start*3/4)
	for i := range kills {
		args := in
		if i%2 == 0 {
			args = out
		}
		hit := kill(t, start*3/4+aim.Moment(), args...)
		if aim.Record(hit); hit {
			live++
		}
		within(t, "programs", allowed, bin, listing(t, c.BinDir))
		within(t, "configurations", allowedConf, conf, listing(t, c.ConfDir))
		if i%7 == 6 { // start from a complete state now and then
			remove(t, c)
			equal(t, "taken back", bin, listing(t, c.BinDir))
			equal(t, "taken back", conf, listing(t, c.ConfDir))
		}
	}
	install(t, c)
	if left, _ := filepath.Glob(filepath.Join(c.BinDir, ".*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	remove(t, c)
	equal(t, "in the end", bin, listing(t, c.BinDir))
	equal(t, "in the end", conf, listing(t, c.ConfDir))
	t.Logf("%d of %d kills hit a live call", live, kills)
	if live < kills/4 {
		t.Errorf("only %d of %d kills hit a live call", live, kills)
	}
}

func weftProgram(t *testing.T) string { return filepath.Join(nettest.Programs(t), "weft") }

// quickest is the duration of the fastest call that is not killed.
func quickest(t *testing.T, args ...string) time.Duration {
	t.Helper()
	best := time.Hour
	for range 3 {
		start := time.Now()
		if out, err := exec.Command(weftProgram(t), args...).CombinedOutput(); err != nil {
			t.Fatalf("weft %v: %v\n%s", args, err, out)
		}
		best = min(best, time.Since(start))
	}
	return best
}

// kill kills a call after a time, and reports whether it was still running.
func kill(t *testing.T, after time.Duration, args ...string) bool {
	t.Helper()
	cmd := exec.Command(weftProgram(t), args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(after)
	_ = cmd.Process.Kill()
	err := cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled() {
		return true
	}
	if err != nil {
		t.Errorf("weft %v: %v\n%s", args, err, &stderr)
	}
	return false
}

// either returns what each name may be: what it is in one of the states.
func either(states ...map[string]string) map[string][]string {
	out := map[string][]string{}
	for _, s := range states {
		for name, is := range s {
			if !slices.Contains(out[name], is) {
				out[name] = append(out[name], is)
			}
		}
	}
	return out
}

// within compares a directory in the middle of a run with what it may contain.
func within(t *testing.T, what string, allowed map[string][]string, first, now map[string]string) {
	t.Helper()
	for name, is := range now {
		if atomicfile.IsTemp(name) {
			continue
		}
		if !slices.Contains(allowed[name], is) {
			t.Errorf("%s: %s is %.200q, want one of %.200q", what, name, is, allowed[name])
		}
	}
	for name, was := range first {
		if now[name] == "" {
			t.Errorf("%s: %s is missing", what, name)
		} else if now[name] != was && now[name+original] != was {
			t.Errorf("%s: the original %s is lost: %.200q", what, name, now[name+original])
		}
	}
}
