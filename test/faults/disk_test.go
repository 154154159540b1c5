// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An agent whose disk is full rejects ADDs and leaves nothing of them; DEL still works.
func TestAgentOnFullDisk(t *testing.T) {
	w := newWorld(t)
	conf := w.lists()["bridge"]
	before := takeSnapshot(t, w.dirs()...)
	dir := filepath.Join(t.TempDir(), "state")
	smallFS(t, dir, "256k")
	a := w.start(dir)
	var pods []*pod
	for range 8 {
		p := w.pod()
		a.mustExecute(order{Verb: "ADD", ID: p.id, Netns: p.netns, Conf: conf})
		pods = append(pods, p)
	}
	attached := takeSnapshot(t, w.dirs()...)
	_ = os.WriteFile(dir+"/filler", make([]byte, 1<<20), 0o600) // fill the file system
	refused := 0
	for range 30 {
		p := w.pod()
		r, ok := a.execute(order{Verb: "ADD", ID: p.id, Netns: p.netns, Conf: conf})
		switch {
		case !ok:
			t.Fatal("the agent died")
		case r.Err == "":
			pods = append(pods, p)
			attached = takeSnapshot(t, w.dirs()...)
		case !strings.Contains(r.Err, dir):
			t.Fatalf("the error does not name the directory: %s", r.Err)
		default:
			refused++
			expectSameHost(t, "ADD on a full disk", attached, w.dirs()...)
		}
	}
	if refused == 0 {
		t.Error("no ADD was rejected")
	}
	for _, p := range pods {
		a.mustExecute(order{Verb: "DEL", ID: p.id, Netns: p.netns, Conf: conf})
	}
	expectSameHost(t, "DEL on a full disk", before, w.dirs()...)
	a.stop()
	a.expectEmptyLedger("DEL on a full disk")
	t.Logf("%d pods attached, %d rejected", len(pods), refused)
}

// A read-only state directory is an error at start that names the directory.
func TestAgentWithReadOnlyState(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	smallFS(t, dir, "256k")
	readOnly(t, dir)
	if err := serveOrders(dir); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("%v", err)
	}
}
