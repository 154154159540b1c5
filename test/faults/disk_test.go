// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An agent whose disk is full refuses ADDs and leaves nothing of them; what is attached is still detached and
// forgotten.
func TestAgentOnFullDisk(t *testing.T) {
	w := newWorld(t)
	conf := w.lists()["bridge"]
	before := look(t, w.dirs()...)
	dir := filepath.Join(t.TempDir(), "state")
	small(t, dir, "256k")
	a := w.start(dir)
	var pods []*pod
	for range 8 {
		p := w.pod()
		a.must(order{Verb: "ADD", ID: p.id, Netns: p.netns, Conf: conf})
		pods = append(pods, p)
	}
	attached := look(t, w.dirs()...)
	_ = os.WriteFile(dir+"/filler", make([]byte, 1<<20), 0o600) // as much as there is room for
	refused := 0
	for range 30 {
		p := w.pod()
		r, ok := a.ask(order{Verb: "ADD", ID: p.id, Netns: p.netns, Conf: conf})
		switch {
		case !ok:
			t.Fatal("the agent died")
		case r.Err == "":
			pods = append(pods, p)
			attached = look(t, w.dirs()...)
		case !strings.Contains(r.Err, dir):
			t.Fatalf("the error does not name the directory: %s", r.Err)
		default:
			refused++
			same(t, "ADD on a full disk", attached, w.dirs()...)
		}
	}
	if refused == 0 {
		t.Error("no ADD was refused")
	}
	for _, p := range pods {
		a.must(order{Verb: "DEL", ID: p.id, Netns: p.netns, Conf: conf})
	}
	same(t, "DEL on a full disk", before, w.dirs()...)
	a.stop()
	a.empty("DEL on a full disk")
	t.Logf("%d pods attached, %d refused", len(pods), refused)
}

// A state directory that cannot be written is refused at the start, by name.
func TestAgentWithReadOnlyState(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	small(t, dir, "256k")
	readOnly(t, dir)
	if err := serveOrders(dir); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("%v", err)
	}
}
