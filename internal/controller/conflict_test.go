// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// busy is a store with concurrent writes: before each of the next writes of a pool it changes the pool.
type busy struct {
	store.Objects
	times  int
	before func()
}

func (b *busy) CompareAndSwap(
	ctx context.Context, kind store.Kind, version string, next store.Object,
) (store.Object, error) {
	if kind == store.AddressPools() && b.times > 0 {
		b.times--
		b.before()
	}
	return b.Objects.CompareAndSwap(ctx, kind, version, next)
}

const onePool = `
apiVersion: weft.dev/v1alpha1
kind: AddressPool
metadata: {name: pods}
spec: {assignmentMode: Automatic, regions: [{cidr: 10.9.0.0/24, blockSize: 28}]}
`

// touch writes the pool as an agent does that asks for blocks.
func (w *world) touch() {
	w.t.Helper()
	key := store.AddressPools().Key("", "pods")
	o, err := w.Objects.Get(w.t.Context(), store.AddressPools(), key)
	if err != nil {
		w.t.Fatal(err)
	}
	next, err := o.Edited(store.Annotate(map[string]string{"touched": o.Version}))
	if err == nil {
		_, err = w.Objects.CompareAndSwap(w.t.Context(), store.AddressPools(), o.Version, next)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// TestReserveWhileOthersWrite: a reservation is applied when Reserve returns, also after a concurrent write of the
// pool. If all writes conflict, the error reports that it is not applied yet.
func TestReserveWhileOthersWrite(t *testing.T) {
	w := newWorld(t, onePool)
	ranges := []netip.Prefix{netip.MustParsePrefix("10.9.0.16/28")}
	b := &busy{Objects: w.Objects, times: 2, before: w.touch}
	if _, err := Reserve(t.Context(), b, "printers", "", ranges, w.now); err != nil {
		t.Fatal(err)
	}
	if p, _ := w.pool("pods"); excluded(p) != "10.9.0.16/28 AddressReservation printers" {
		t.Errorf("the pool excludes %q when `reserve` has answered", excluded(p))
	}
	b.times = 1000
	_, err := Release(t.Context(), b, ranges, w.now)
	var fault *model.Error
	if !errors.As(err, &fault) || fault.Code != model.CodeTryAgain || !strings.Contains(err.Error(), "not applied yet") {
		t.Errorf("while others write without end: %v", err)
	}
}

// TestMigrateAndABlockOfTheLastMoment: a pool of which a node claimed a block until it was disabled does not go.
func TestMigrateAndABlockOfTheLastMoment(t *testing.T) {
	w := newWorld(t, onePool+`---
apiVersion: weft.dev/v1alpha1
kind: AddressPool
metadata: {name: newer}
spec: {assignmentMode: Automatic, regions: [{cidr: 10.10.0.0/24, blockSize: 28}]}
`)
	claimed := false
	claim := func() {
		o, err := store.NewObject(
			[]byte(`{"apiVersion":"weft.dev/v1alpha1","kind":"AddressBlock","metadata":{"name":"pods-10-9-0-0-28"},` +
				`"spec":{"pool":"pods","cidr":"10.9.0.0/28","node":"a"}}`))
		if err == nil && !claimed {
			_, err = w.Objects.Create(t.Context(), store.AddressBlocks(), o)
			claimed = true
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	m, err := Migrate(t.Context(), &busy{Objects: w.Objects, times: 1, before: claim}, "pods", "newer", false, true, w.now)
	if err != nil || m.Deleted || m.Blocks != 1 {
		t.Errorf("%+v, %v: the pool must stay", m, err)
	}
	if p, _ := w.pool("pods"); !p.Disabled {
		t.Error("the pool gives further addresses")
	}
}
