// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A foreign plugin is killed with the agent that waits for it: it must not continue an ADD that the next agent undoes.
func TestForeignPluginDiesWithTheAgent(t *testing.T) {
	w := newWorld(t)
	conf := strings.Replace(w.lists()["bridge, foreign, lo"], `"marks"`, `"slow":true,"marks"`, 1)
	before := takeSnapshot(t, w.dirs()...)
	dir := t.TempDir()
	a := w.start(dir)
	p := w.pod()
	go func() { _, _ = a.execute(order{Verb: "ADD", ID: p.id, Netns: p.netns, Conf: conf}) }()
	var pid string
	waitFor(t, "the foreign plugin runs", func() bool {
		b, err := os.ReadFile(filepath.Join(w.marks, p.id+".eth0"))
		pid = string(b)
		return err == nil && pid != ""
	})
	if err := a.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	awaitDeath(t, a)
	waitFor(t, "the foreign plugin is gone", func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%s/stat", pid))
		return err != nil || strings.Contains(string(b), ") Z ") // a zombie if no init process reaps orphans
	})
	a = w.start(dir)
	a.stop()
	expectSameHost(t, "killed beside a foreign plugin", before, w.dirs()...)
	a.expectEmptyLedger("killed beside a foreign plugin")
}

func waitFor(t testing.TB, what string, f func() bool) {
	t.Helper()
	for until := time.Now().Add(time.Minute); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("not after a minute: %s", what)
		}
	}
}
