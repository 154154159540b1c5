// SPDX-License-Identifier: Apache-2.0

package dir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/cluster/store"
)

const claim = "apiVersion: weft.dev/v1alpha1\nkind: AddressClaim\nmetadata: {name: c%d, namespace: shop}\n" +
	"spec: {addresses: [10.60.%d.%d]}\n"

// thousands writes 5,000 claims, in one file or in one each, and a pod.
func thousands(t *testing.T, inOne bool) string {
	t.Helper()
	path := t.TempDir()
	var all strings.Builder
	for i := range 5000 {
		text := fmt.Sprintf(claim, i, i/250, i%250)
		if all.WriteString("---\n" + text); !inOne {
			put(t, path, fmt.Sprintf("c%d.yaml", i), text)
		}
	}
	if inOne {
		put(t, path, "claims.yaml", all.String())
	}
	put(t, path, "pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n")
	return path
}

func put(t *testing.T, path, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(path, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestWork: with 5,000 objects, in one file or in one each, a write of an object parses that one and no other, here and in
// a process that watches, and only the changed files are inspected.
func TestWork(t *testing.T) {
	for _, inOne := range []bool{false, true} {
		t.Run(fmt.Sprintf("in one file: %t", inOne), func(t *testing.T) {
			path := thousands(t, inOne)
			var stores []*Store
			var feeds []<-chan store.Event
			ctx, cancel := context.WithCancel(t.Context())
			defer func() {
				cancel()
				for _, feed := range feeds {
					for range feed { // the watch ends
					}
				}
			}()
			for range 2 { // the second as another process would have it
				s, err := Open(path)
				if err != nil {
					t.Fatal(err)
				}
				feed, err := s.Watch(ctx)
				if err != nil {
					t.Fatal(err)
				}
				for e := range feed {
					if e.Type == store.Synced {
						break
					}
				}
				stores, feeds = append(stores, s), append(feeds, feed)
			}
			const rounds = 4
			keys := []store.Key{store.PodKey("default", "web")}
			for i := range rounds {
				keys = append(keys, store.AddressClaims().Key("shop", fmt.Sprintf("c%d", i*400)))
			}
			var before []work
			for _, s := range stores {
				before = append(before, s.counted())
			}
			versions := map[store.Key]string{}
			for i := range rounds {
				for _, key := range keys {
					o, err := stores[0].Modify(ctx, key, store.Annotate(map[string]string{"round": fmt.Sprint(i)}))
					if err != nil {
						t.Fatal(err)
					}
					versions[key] = o.Version
					for _, s := range stores {
						if have, err := s.Get(key); err != nil || have.Version != o.Version {
							t.Fatalf("%s has version %s after it was written: %v", key, have.Version, err)
						}
					}
				}
			}
			for _, feed := range feeds {
				seen := map[store.Key]string{}
				for len(seen) < len(versions) {
					if e := <-feed; e.Object.Version == versions[e.Object.Key] {
						seen[e.Object.Key] = e.Object.Version
					}
				}
			}
			// A file is inspected again until its time stamp is old enough to tell versions apart.
			writes := rounds * len(keys)
			for i, s := range stores {
				now := s.counted()
				parsed, inspected := now.parsed-before[i].parsed, now.inspected-before[i].inspected
				t.Logf("store %d: %d writes, %d documents parsed, %d files inspected, %d of all files", i, writes, parsed, inspected,
					now.scans-before[i].scans)
				if parsed > writes {
					t.Errorf("store %d: %d documents were parsed for %d writes", i, parsed, writes)
				}
				if full := (now.scans - before[i].scans) * 5001; !inOne && inspected-full > writes*2*len(keys) {
					t.Errorf("store %d: %d files inspected for %d writes of %d files", i, inspected-full, writes, len(keys))
				}
			}
		})
	}
}

func (s *Store) counted() work {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.work
}

// TestReadsAreCurrent: while the kernel reports changes, too, each read sees what was written before it, however that
// was done.
func TestReadsAreCurrent(t *testing.T) {
	path, outside := filepath.Join(t.TempDir(), "store"), t.TempDir()
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	text := func(n int) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: web, annotations: {round: %q}}\n", fmt.Sprint(n))
	}
	put(t, path, "pod.yaml", text(0))
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	feed, err := s.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for range feed {
		}
	}()
	defer func() { cancel(); <-drained }()
	want := func(step string, n int) {
		t.Helper()
		o, err := s.Get(store.PodKey("default", "web"))
		if n < 0 {
			if !errors.Is(err, store.ErrNotFound) {
				t.Errorf("%s: %v, %v", step, o.Key, err)
			}
			return
		}
		pod, _ := o.Pod()
		if err != nil || pod.Annotations["round"] != fmt.Sprint(n) {
			t.Errorf("%s: annotation %q, want %d; %v", step, pod.Annotations["round"], n, err)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(path, "pod.yaml")
	for round := range 50 {
		n := 10 * round
		put(t, path, "pod.yaml", text(n))
		want("written in place", n)
		put(t, outside, "next.yaml", text(n+1))
		must(os.Rename(filepath.Join(outside, "next.yaml"), file))
		want("renamed onto", n+1)
		must(os.Remove(file))
		want("removed", -1)
		put(t, outside, "target.yaml", text(n+2))
		must(os.Symlink(filepath.Join(outside, "target.yaml"), file))
		want("linked", n+2)
		put(t, outside, "target.yaml", text(n+3))
		want("target of the link written", n+3)
		must(os.Remove(file))
		must(os.Link(filepath.Join(outside, "target.yaml"), file))
		want("hard link", n+3)
		put(t, outside, "target.yaml", text(n+4))
		want("hard link written by its other name", n+4)
		must(os.Rename(path, path+"-old"))
		must(os.Mkdir(path, 0o700))
		want("directory replaced", -1)
		put(t, path, "pod.yaml", text(n+5))
		want("written in the new directory", n+5)
		must(os.RemoveAll(path + "-old"))
		want("old directory removed", n+5)
	}
}

// TestFollow: who follows a store reads what is current, also after that has ended.
func TestFollow(t *testing.T) {
	path := t.TempDir()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.Follow(ctx)
	if _, err := s.List(""); err != nil { // the first read looks at all files
		t.Fatal(err)
	}
	before := s.counted()
	for i := range 20 {
		if i == 10 {
			cancel()
		}
		put(t, path, fmt.Sprintf("p%d.yaml", i), fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: p%d}\n", i))
		if all, err := s.List("Pod"); err != nil || len(all) != i+1 {
			t.Fatalf("%d pods, want %d: %v", len(all), i+1, err)
		}
		if i == 9 && s.counted().scans > before.scans+1 { // one after a pause of seconds
			t.Errorf("%d looks at all files for ten new ones", s.counted().scans-before.scans)
		}
	}
}

// TestNoInotify: where the kernel has no inotify instance left, a watch sees changes, and reads are current.
func TestNoInotify(t *testing.T) {
	path := t.TempDir()
	put(t, path, "pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n")
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	s.listen = func(string) *notifier { return nil }
	ctx, cancel := context.WithCancel(t.Context())
	feed, err := s.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	next := func(want store.EventType) {
		t.Helper()
		if e := <-feed; e.Type != want {
			t.Errorf("event %+v, want %s", e, want)
		}
	}
	next(store.Added)
	next(store.Synced)
	put(t, path, "pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: web, labels: {a: b}}\n")
	next(store.Modified)
	put(t, path, "other.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: other}\n")
	if _, err := s.Get(store.PodKey("default", "other")); err != nil {
		t.Error(err)
	}
	next(store.Added)
	cancel()
	for range feed { // the watch ends
	}
}
