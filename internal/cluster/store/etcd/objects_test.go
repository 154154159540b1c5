// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/apitest"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/etcd"
)

func objects(t *testing.T, e *apitest.Etcd, prefix string) *etcd.ObjectStore {
	t.Helper()
	s, err := etcd.OpenObjects(etcd.Config{
		Access: etcd.Access{
			Endpoints: []string{e.URL}, Prefix: prefix, CAFile: e.CAFile, CertFile: e.CertFile, KeyFile: e.KeyFile,
		},
		Log: slog.New(slog.DiscardHandler), Now: time.Now, After: time.After,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func pool(t *testing.T, name, words string) store.Object {
	t.Helper()
	o, err := store.NewObject(
		fmt.Appendf(nil, `{"apiVersion":"weft.dev/v1alpha1","kind":"AddressPool","metadata":{"name":%q},"spec":{%s}}`,
			name, words),
	)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestObjects: what a store promises of single objects, with a client's certificate.
func TestObjects(t *testing.T) {
	e := apitest.StartEtcd(t, nil, netip.MustParseAddr("127.0.0.1"), true)
	s, ctx, kind := objects(t, e, "/one").Objects(), t.Context(), store.AddressPools()
	other := objects(t, e, "/two").Objects()
	key := kind.Key("", "a")
	if _, err := s.Get(ctx, kind, key); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("get of nothing: %v", err)
	}
	if _, err := s.CompareAndSwap(ctx, kind, "7", pool(t, "a", "")); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("swap of nothing: %v", err)
	}
	first, err := s.Create(ctx, kind, pool(t, "a", `"cooldownSeconds":1`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(ctx, kind, pool(t, "a", "")); !errors.Is(err, store.ErrExists) {
		t.Errorf("create again: %v", err)
	}
	if spec, err := first.AddressPool(); err != nil || time.Since(time.Unix(spec.Created, 0)).Abs() > time.Hour {
		t.Errorf("the pool's birth is %d, %v", spec.Created, err)
	}
	second, err := s.CompareAndSwap(ctx, kind, first.Version, pool(t, "a", `"cooldownSeconds":2`))
	if err != nil || second.Version == first.Version {
		t.Fatalf("swap: version %s, %v", second.Version, err)
	}
	if got, err := s.Get(ctx, kind, key); err != nil || got.Version != second.Version ||
		string(got.Raw) != string(second.Raw) {
		t.Errorf("get: %s %s, %v", got.Version, got.Raw, err)
	}
	for _, version := range []string{first.Version, "", "none"} {
		if _, err := s.CompareAndSwap(ctx, kind, version, pool(t, "a", "")); !errors.Is(err, store.ErrConflict) {
			t.Errorf("swap of version %q: %v", version, err)
		}
		if err := s.Delete(ctx, kind, key, version); !errors.Is(err, store.ErrConflict) {
			t.Errorf("delete of version %q: %v", version, err)
		}
	}
	if all, err := other.List(ctx, kind); err != nil || len(all) != 0 {
		t.Errorf("another prefix has %d, %v", len(all), err)
	}
	if all, err := s.List(ctx, kind); err != nil || len(all) != 1 || all[0].Version != second.Version {
		t.Errorf("list: %v, %v", all, err)
	}
	if err := s.Delete(ctx, kind, key, second.Version); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(ctx, kind, key, second.Version); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("delete again: %v", err)
	}
}

// TestListWithABadKey: an invalid key does not hide the others.
func TestListWithABadKey(t *testing.T) {
	w := newWorld(t, apitest.StartEtcd(t, nil, netip.MustParseAddr("127.0.0.1"), false), "bad", "")
	s, kind := objects(t, w.Etcd, w.prefix).Objects(), store.AddressPools()
	if _, err := s.Create(t.Context(), kind, pool(t, "a", "")); err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"{", `{"kind":"AddressPool"}`, ""} {
		if _, err := w.raw.Put(t.Context(), w.prefix+"/addresspools.weft.dev/b", value); err != nil {
			t.Fatal(err)
		}
		all, err := s.List(t.Context(), kind)
		if err != nil || len(all) != 1 || all[0].Key.Name != "a" {
			t.Errorf("beside %q: %v, %v", value, all, err)
		}
	}
}

// TestOneOfManyCreates: of many that create or swap at the same time, one does.
func TestOneOfManyCreates(t *testing.T) {
	e := apitest.StartEtcd(t, nil, netip.MustParseAddr("127.0.0.1"), false)
	kind := store.AddressPools()
	var mu sync.Mutex
	created, swapped := 0, 0
	race := func(do func(store.Objects) error, none error, won *int) {
		var all sync.WaitGroup
		for range 8 {
			s := objects(t, e, "/weft").Objects()
			all.Go(func() {
				err := do(s)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					*won++
				} else if !errors.Is(err, none) {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	o := pool(t, "a", "")
	race(func(s store.Objects) error { _, err := s.Create(t.Context(), kind, o); return err }, store.ErrExists, &created)
	now, err := objects(t, e, "/weft").Objects().Get(t.Context(), kind, o.Key)
	if err != nil {
		t.Fatal(err)
	}
	race(func(s store.Objects) error {
		_, err := s.CompareAndSwap(t.Context(), kind, now.Version, o)
		return err
	}, store.ErrConflict, &swapped)
	if created != 1 || swapped != 1 {
		t.Errorf("%d created it, %d swapped it", created, swapped)
	}
}

// TestObjectsAreFollowed: also across an outage of etcd. A write meanwhile reports that its outcome is unknown.
func TestObjectsAreFollowed(t *testing.T) {
	e := apitest.StartEtcd(t, nil, netip.MustParseAddr("127.0.0.1"), false)
	sh := objects(t, e, "/weft")
	s, kind := sh.Objects(), store.AddressPools()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	must := func(o store.Object, err error) store.Object {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	a := must(s.Create(ctx, kind, pool(t, "a", "")))
	events, err := s.Watch(ctx, kind)
	if err != nil {
		t.Fatal(err)
	}
	everything, err := sh.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	next := func(from <-chan store.Event) string {
		t.Helper()
		select {
		case ev := <-from:
			return fmt.Sprint(ev.Type, " ", ev.Object.Key.Name)
		case <-ctx.Done():
			t.Fatal("no event")
		}
		return ""
	}
	expect := func(from <-chan store.Event, want ...string) {
		t.Helper()
		for _, w := range want {
			if got := next(from); got != w {
				t.Fatalf("%s, want %s", got, w)
			}
		}
	}
	expect(events, "added a", "synced ")
	expect(everything, "added a", "synced ")
	node, err := store.NewObject([]byte(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}`))
	if err != nil {
		t.Fatal(err)
	}
	must(s.Create(ctx, store.Nodes(), node))
	a = must(s.CompareAndSwap(ctx, kind, a.Version, pool(t, "a", `"cooldownSeconds":2`)))
	expect(events, "modified a")
	expect(everything, "added n", "modified a")
	e.Stop()
	short, end := context.WithTimeout(ctx, 300*time.Millisecond)
	defer end()
	if _, err := s.Create(short, kind, pool(t, "b", "")); err == nil || errors.Is(err, store.ErrExists) ||
		errors.Is(err, store.ErrConflict) {
		t.Errorf("create without etcd: %v", err)
	}
	e.Restart()
	again := func(do func() error, done error) { // the connection may be one that was begun while there was no etcd
		t.Helper()
		for err := do(); err != nil && !errors.Is(err, done); err = do() {
			if ctx.Err() != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	again(func() error { return s.Delete(ctx, kind, a.Key, a.Version) }, store.ErrNotFound)
	again(func() error { _, err := s.Create(ctx, kind, pool(t, "c", "")); return err }, store.ErrExists)
	seen := map[string]bool{}
	for !seen["deleted a"] || !seen["added c"] {
		seen[next(events)] = true
	}
}
