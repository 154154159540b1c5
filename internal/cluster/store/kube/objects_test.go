// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

func objectsAt(t *testing.T, w world) {
	ctx := context.Background()
	v := start(t, w.config(t, "n1"))
	o, kind := v.Objects(), store.AddressPools()
	pool, err := store.AddressPoolObject(store.Object{}, model.AddressPool{
		Name: "p1", Regions: []model.AddressRegion{{CIDR: netip.MustParsePrefix("10.9.0.0/16"), BlockSize: 26}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var made store.Object
	eventually(t, "the kind of pools", func() bool { // a CRD is established after a moment
		made, err = o.Create(ctx, kind, pool)
		return err == nil
	})
	if _, err := o.Create(ctx, kind, pool); !errors.Is(err, store.ErrExists) {
		t.Errorf("create twice: %v", err)
	}
	next, err := store.AddressPoolObject(made, model.AddressPool{Name: "p1", Cooldown: 7})
	if err != nil {
		t.Fatal(err)
	}
	swapped, err := o.CompareAndSwap(ctx, kind, made.Version, next)
	if err != nil || swapped.Version == made.Version {
		t.Fatalf("swap: %v", err)
	}
	if _, err := o.CompareAndSwap(ctx, kind, made.Version, next); !errors.Is(err, store.ErrConflict) {
		t.Errorf("swap with an old version: %v", err)
	}
	got, err := o.Get(ctx, kind, made.Key)
	if p, err2 := got.AddressPool(); err != nil || err2 != nil || p.Cooldown != 7 || got.Version != swapped.Version {
		t.Errorf("get: %+v %v %v", p, err, err2)
	}
	swapped = late(t, w, o, swapped)
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	changes, err := o.Watch(watching, kind, store.WhereaboutsPools()) // the second is not installed
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"added p1", "synced "}, reported(t, changes, 2)); d != "" {
		t.Error(d)
	}
	if err := o.Delete(ctx, kind, made.Key, made.Version); !errors.Is(err, store.ErrConflict) {
		t.Errorf("delete an old version: %v", err)
	}
	if err := o.Delete(ctx, kind, made.Key, swapped.Version); err != nil {
		t.Errorf("delete: %v", err)
	}
	if d := cmp.Diff([]string{"deleted p1"}, reported(t, changes, 1)); d != "" {
		t.Error(d)
	}
	if _, err := o.Get(ctx, kind, made.Key); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("get what is gone: %v", err)
	}
	if all, err := o.List(ctx, store.Nodes()); err != nil || len(all) != 2 || all[0].Key.Kind != "Node" {
		t.Errorf("nodes: %v %v", all, err)
	}
	cancel()
	for range changes { // it is closed
	}
}

// late: a server performs a write, and reports that its storage timed out. That is not a conflict.
func late(t *testing.T, w world, o store.Objects, have store.Object) store.Object {
	t.Helper()
	ctx := context.Background()
	next, err := store.AddressPoolObject(have, model.AddressPool{Name: "p1", Cooldown: 8})
	if err != nil {
		t.Fatal(err)
	}
	writes := 0
	w.Refuse(func(r *http.Request) int {
		if r.Method != http.MethodPut {
			return 0
		}
		if writes++; writes > 1 {
			return 0
		}
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return http.StatusTeapot
		}
		w.Do(r.Method, r.URL.RequestURI(), string(b))
		return http.StatusGatewayTimeout
	})
	_, err = o.CompareAndSwap(ctx, store.AddressPools(), have.Version, next)
	w.Refuse(nil)
	if err == nil || errors.Is(err, store.ErrConflict) || writes != 1 {
		t.Errorf("%d writes, error %v: nobody else changed it", writes, err)
	}
	got, err := o.Get(ctx, store.AddressPools(), have.Key)
	if p, err2 := got.AddressPool(); err != nil || err2 != nil || p.Cooldown != 8 {
		t.Errorf("it was done: %+v %v %v", p, err, err2)
	}
	return got
}

func reported(t *testing.T, changes <-chan store.Event, n int) (out []string) {
	t.Helper()
	for range n {
		select {
		case e := <-changes:
			out = append(out, fmt.Sprintf("%s %s", e.Type, e.Object.Key.Name))
		case <-time.After(long):
			t.Fatalf("told so far: %v", out)
		}
	}
	return out
}

func resumption(t *testing.T, w world) {
	v := start(t, w.config(t, "n1"))
	w.pod(t, "resume-1", "n1", nil)
	v.untilPod("resume-1")
	w.Reset()
	for i := range 3 {
		time.Sleep(5 * time.Second) // the reflector takes a watch that ends within a second for one that is refused
		w.CloseConnections()
		name := fmt.Sprintf("resumed-%d", i)
		w.pod(t, name, "n1", nil)
		v.untilPod(name)
	}
	watches := 0
	for _, r := range w.Seen() {
		switch {
		case r.Query.Get("watch") == "" || r.Query.Get("sendInitialEvents") != "":
			t.Errorf("everything was told again: %s %s?%s", r.Method, r.Path, r.Query.Encode())
		case r.Query.Get("resourceVersion") == "" || r.Query.Get("resourceVersion") == "0":
			t.Errorf("watch from nowhere: %s?%s", r.Path, r.Query.Encode())
		default:
			watches++
		}
	}
	if watches < 3 {
		t.Errorf("%d watches after 3 cuts", watches)
	}
	// The server has compacted the watches' resource version: everything is listed again, and objects that were deleted
	// meanwhile are gone.
	w.Refuse(func(r *http.Request) int {
		if r.URL.Query().Get("watch") != "" && r.URL.Query().Get("sendInitialEvents") == "" {
			return http.StatusGone
		}
		return 0
	})
	w.CloseConnections()
	w.Do("DELETE", "/api/v1/namespaces/default/pods/resumed-0?gracePeriodSeconds=0", nil)
	w.pod(t, "resumed-last", "n1", nil)
	v.untilPod("resumed-last")
	v.until("the pod that went", func(c *model.Cluster) bool {
		return !slices.ContainsFunc(c.Pods, func(p model.Pod) bool { return p.Name == "resumed-0" })
	})
}

// kindGone takes the definition of networks away and brings it back.
func kindGone(t *testing.T, w world) {
	v := start(t, w.config(t, "n1"))
	v.until("the network", func(c *model.Cluster) bool { return len(c.Networks) == 1 })
	var refused atomic.Int32
	w.Refuse(func(r *http.Request) int {
		if strings.Contains(r.URL.Path, "network-attachment-definitions") && refused.Add(1) < 3 { // a watch and a list
			return http.StatusNotFound
		}
		return 0
	})
	w.CloseConnections()
	eventually(t, "attempts", func() bool { return refused.Load() > 2 })
	if _, err := v.Network(context.Background(), "default", "facts-net"); err != nil ||
		len(v.facts.Cluster().Networks) != 1 {
		t.Errorf("a server that starts was believed: %v", err)
	}
	w.Refuse(func(r *http.Request) int {
		if strings.Contains(r.URL.Path, "network-attachment-definitions") {
			return http.StatusNotFound
		}
		return 0
	})
	w.CloseConnections()
	v.until("no networks", func(c *model.Cluster) bool { return len(c.Networks) == 0 })
}
