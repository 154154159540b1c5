// SPDX-License-Identifier: Apache-2.0

// Package lab_test runs whole labs with the built programs, as a user does.
package lab_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.MainWithPrograms(m)) }

// result is the output and exit code of a command line.
type result struct {
	stdout, stderr string
	code           int
}

func command(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	return exec.Command(filepath.Join(nettest.Programs(t), "weft"), args...)
}

// weft runs the program.
func weft(t testing.TB, args ...string) result {
	t.Helper()
	cmd := command(t, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	timer := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	_ = cmd.Run()
	return result{stdout: out.String(), stderr: errs.String(), code: cmd.ProcessState.ExitCode()}
}

// must runs the program, which must succeed.
func must(t testing.TB, args ...string) result {
	t.Helper()
	a := weft(t, args...)
	if a.code != 0 {
		t.Fatalf("weft %s: exit %d\n%s%s", strings.Join(args, " "), a.code, a.stdout, a.stderr)
	}
	return a
}

// labDir creates a state directory, whose lab is removed at the end. Its path is short because of sockets in it.
func labDir(t testing.TB) string {
	t.Helper()
	parent, err := os.MkdirTemp("", "wl")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(parent, "lab")
	t.Cleanup(func() {
		if a := weft(t, "lab", "down", "--dir", dir); a.code != 0 {
			t.Errorf("lab down: %s", a.stderr)
		}
		_ = os.Remove(parent)
	})
	return dir
}

// decode parses JSON.
func decode[T any](t testing.TB, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return v
}

// host is the state of the host that a lab could change.
type host struct {
	links, rules, mounts string
	processes            []string
}

func takeSnapshot(t testing.TB, dir string) host {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	// Named namespaces are those of other tests: a lab has its own in its directory.
	others := func(line string) bool { return strings.Contains(line, " /run/netns/") }
	return host{
		links:     nettest.Run(t, nil, "ip", "-br", "addr"),
		rules:     nettest.Run(t, nil, "nft", "list", "ruleset"),
		mounts:    strings.Join(slices.DeleteFunc(strings.Split(string(mounts), "\n"), others), "\n"),
		processes: processesOf(dir),
	}
}

// processesOf returns the processes with the lab's directory in their arguments or environment.
func processesOf(dir string) []string {
	var out []string
	found, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range found {
		args, _ := os.ReadFile(p + "/cmdline")
		env, _ := os.ReadFile(p + "/environ")
		if pid, _ := strconv.Atoi(filepath.Base(p)); pid != os.Getpid() && bytes.Contains(append(args, env...), []byte(dir)) {
			out = append(out, filepath.Base(p)+" "+string(bytes.ReplaceAll(args, []byte{0}, []byte{' '})))
		}
	}
	return out
}

// expectSame fails the test if the host has changed. It waits for processes to be reaped, and for the kernel to delete what
// they had.
func (h host) expectSame(t testing.TB, dir string) {
	t.Helper()
	var now host
	sometime(time.Minute, func() bool {
		now = takeSnapshot(t, dir)
		return len(now.processes) == len(h.processes) && now.links == h.links && now.rules == h.rules && now.mounts == h.mounts
	})
	for _, c := range []struct{ what, was, is string }{
		{"links", h.links, now.links},
		{"nft", h.rules, now.rules},
		{"mounts", h.mounts, now.mounts},
		{"processes", strings.Join(h.processes, "\n"), strings.Join(now.processes, "\n")},
	} {
		if c.was != c.is {
			t.Errorf("%s of the host: before\n%s\nare\n%s", c.what, c.was, c.is)
		}
	}
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("%s is left", dir)
	}
}

// within waits until ok returns true, for d at most.
func within(t testing.TB, d time.Duration, what string, ok func() bool) {
	t.Helper()
	if !sometime(d, ok) {
		t.Fatalf("not after %s: %s", d, what)
	}
}

// sometime reports whether something is so within a time.
func sometime(d time.Duration, ok func() bool) bool {
	for end := time.Now().Add(d); ; time.Sleep(20 * time.Millisecond) {
		if ok() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}
