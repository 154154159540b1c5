// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"os"
	"testing"

	"github.com/weft-net/weft/internal/cluster/store"
)

func podLine(i, version int) archiveLine {
	name := fmt.Sprintf("p%d", i)
	return archiveLine{Name: "a/" + name, Object: fmt.Appendf(nil,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"a","uid":"u%d"},"spec":{"nodeName":"n"}}`,
		name, version)}
}

// replayed returns the uids of the pods that a new agent reads, by name.
func replayed(t *testing.T, dir, node string) (map[string]string, bool) {
	t.Helper()
	got := map[string]string{}
	whole, err := newArchive(dir, node, "policy-pods").replay(func(o store.Object) {
		p, err := o.Pod()
		if err != nil {
			t.Error(err)
		}
		got[p.Name] = p.UID
	})
	if err != nil {
		t.Log(err)
	}
	return got, whole
}

// An archive has the last versions after a restart, also after compactions and wherever the agent was killed; before
// the first complete list it is empty.
func TestArchive(t *testing.T) {
	dir := t.TempDir()
	a := newArchive(dir, "n1", "policy-pods")
	put := func(lines ...archiveLine) {
		t.Helper()
		for _, l := range lines {
			a.add(l)
		}
		if err := a.flush(); err != nil {
			t.Fatal(err)
		}
	}
	if got, whole := replayed(t, dir, "n1"); whole || len(got) > 0 {
		t.Errorf("of nothing: %v", got)
	}
	put(podLine(1, 1), podLine(2, 1))
	if got, whole := replayed(t, dir, "n1"); whole || len(got) > 0 {
		t.Errorf("before everything was told: %v", got)
	}
	put(archiveLine{Whole: true})
	put(podLine(1, 2), archiveLine{Name: "a/p2"}, podLine(3, 1))
	want := "map[p1:u2 p3:u1]"
	if got, whole := replayed(t, dir, "n1"); !whole || fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
	if got, whole := replayed(t, dir, "n2"); whole || len(got) > 0 {
		t.Errorf("another node's: %v", got)
	}
	// A killed agent leaves half a piece: what precedes it counts.
	b, err := os.ReadFile(a.file)
	if err != nil {
		t.Fatal(err)
	}
	put(podLine(4, 1))
	longer, err := os.ReadFile(a.file)
	if err != nil {
		t.Fatal(err)
	}
	for cut := len(b); cut < len(longer); cut++ {
		if err := os.WriteFile(a.file, longer[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		if got, whole := replayed(t, dir, "n1"); !whole || len(got) < 2 || got["p1"] != "u2" {
			t.Fatalf("cut at %d of %d: %v", cut, len(longer), got)
		}
	}
	a = newArchive(dir, "n1", "policy-pods")
	if whole, err := a.replay(func(store.Object) {}); !whole || err != nil {
		t.Fatal(whole, err)
	}
	put(podLine(5, 1))
	if got, _ := replayed(t, dir, "n1"); got["p5"] != "u1" {
		t.Errorf("what is written behind half a piece is lost: %v", got)
	}
	// It does not grow forever.
	a = newArchive(dir, "n1", "policy-pods")
	for round := range 200 {
		for i := range 100 {
			a.add(podLine(i, round*1000+i*7919))
		}
		put(archiveLine{Whole: true})
	}
	info, err := os.Stat(a.file)
	if err != nil || info.Size() > 2*smallArchive {
		t.Errorf("%v %v", info.Size(), err)
	}
	if got, whole := replayed(t, dir, "n1"); !whole || len(got) != 100 || got["p5"] != fmt.Sprint("u", 199_000+5*7919) {
		t.Errorf("%d %t %v", len(got), whole, got["p5"])
	}
}

// Of large objects that change often only the last version is written; and what was written in between is not lost when
// the list is complete.
func TestArchiveLate(t *testing.T) {
	dir := t.TempDir()
	a := newArchive(dir, "n1", "policy-pods")
	a.coalesced = map[string]archiveLine{}
	flush := func() {
		t.Helper()
		if err := a.flush(); err != nil {
			t.Fatal(err)
		}
	}
	a.add(podLine(1, 1))
	a.add(podLine(2, 1))
	a.add(archiveLine{Whole: true})
	flush()
	before, err := os.Stat(a.file)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		a.add(podLine(1, 2+i))
	}
	a.add(podLine(3, 1))
	a.add(archiveLine{Name: "a/p2"})
	flush()
	want := "map[p1:u1001 p3:u1]"
	if got, whole := replayed(t, dir, "n1"); !whole || fmt.Sprint(got) != want {
		t.Errorf("%v, %t; want %s", got, whole, want)
	}
	if after, err := os.Stat(a.file); err != nil || after.Size() > before.Size()+1000 {
		t.Errorf("%d bytes, and %d before (%v)", after.Size(), before.Size(), err)
	}
}

// Of many queued lines most wait compressed, and all of them are in the file, also behind those of before.
func TestArchiveOfMany(t *testing.T) {
	dir := t.TempDir()
	a := newArchive(dir, "n1", "policy-pods")
	const pods = 20_000
	for version := 1; version <= 2; version++ {
		for i := range pods {
			a.add(podLine(i, version))
		}
		a.add(archiveLine{Whole: true})
		if n := a.pending.Cap() + a.packed.Cap(); n > 3<<20 {
			t.Errorf("%d bytes wait", n)
		}
		if err := a.flush(); err != nil {
			t.Fatal(err)
		}
		got, whole := replayed(t, dir, "n1")
		if want := fmt.Sprint("u", version); !whole || len(got) != pods || got["p0"] != want || got["p19999"] != want {
			t.Errorf("whole %t, %d pods, %s, %s", whole, len(got), got["p0"], got["p19999"])
		}
		if a.pending.Cap()+a.packed.Cap() > 0 {
			t.Error("memory is not released")
		}
	}
}
