// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"bufio"
	"bytes"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A watched lab prints a pod's row when it starts and when it is deleted, and Ctrl-C ends the watch with exit code 0. The
// lists of the runtime have the formats of kubectl.
func TestWatch(t *testing.T) {
	dir := labDir(t)
	must(t, "lab", "up", "--nodes", "1", "--wires", "1", "--dir", dir)
	watch := command(t, "lab", "status", "--watch", "--no-headers", "--dir", dir)
	var errs bytes.Buffer
	watch.Stderr = &errs
	out, err := watch.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	guard := time.AfterFunc(5*time.Minute, func() { _ = watch.Process.Kill() })
	defer guard.Stop()
	defer func() { _ = watch.Process.Kill() }()
	lines := bufio.NewScanner(out)
	until := func(words ...string) {
		t.Helper()
		for lines.Scan() {
			fields, rest := strings.Fields(lines.Text()), words
			for _, f := range fields {
				if len(rest) > 0 && f == rest[0] {
					rest = rest[1:]
				}
			}
			if len(rest) == 0 {
				return
			}
		}
		t.Fatalf("no line with %q: %s", words, &errs)
	}
	until("node1")
	must(t, "lab", "apply", "--dir", dir, "-f", write(t, "new.yaml", sleeper("new", "")))
	until("default/new", "node1", "Running")
	state := filepath.Join(dir, "nodes", "node1", "sandbox")
	if a := must(t, "sandbox", "list", "--state-dir", state, "-o", "name"); a.stdout != "default/new\n" {
		t.Errorf("sandbox list -o name: %q", a.stdout)
	}
	short, wide := must(t, "sandbox", "list", "--state-dir", state).stdout, must(t, "sandbox", "list", "--state-dir", state, "-o", "wide").stdout
	if !strings.HasPrefix(wide, "NAMESPACE") || !strings.Contains(wide, "NETNS") || strings.Contains(short, "NETNS") ||
		len(strings.Fields(wide)) != len(strings.Fields(short))+2 {
		t.Errorf("sandbox list:\n%s-o wide:\n%s", short, wide)
	}
	must(t, "lab", "delete", "--dir", dir, "pod/new")
	until("default/new", "deleted")
	if err := watch.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := watch.Wait(); err != nil { // what is wrong for a moment is on stderr
		t.Errorf("after Ctrl-C: %v %s", err, &errs)
	}
}
