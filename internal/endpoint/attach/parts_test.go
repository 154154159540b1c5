// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
	"github.com/weft-net/weft/internal/state"
)

// failing is a RecordStore that fails on demand.
type failing struct {
	RecordStore
	err error
}

func (f *failing) Put(...Record) error              { return f.err }
func (f *failing) SetStage(Stage, ...Record) error  { return f.err }
func (f *failing) Delete(model.AttachmentKey) error { return f.err }

// A failed write or delete is not reported to the listeners, whose state would differ from the stored records.
func TestNotifyingStoreReportsSuccessOnly(t *testing.T) {
	var heard []string
	disk := &failing{}
	failed := errors.New("no space")
	store := &notifyingStore{
		store: disk,
		written: []func(Record){func(r Record) {
			heard = append(heard, strings.TrimSpace("written "+r.Request.ContainerID+" "+string(r.Stage)))
		}},
		forgotten: []func(model.AttachmentKey){
			func(k model.AttachmentKey) { heard = append(heard, "forgotten "+k.ContainerID) },
		},
	}
	one, two := recordOf("net", "one", 1), recordOf("net", "two", 1)
	if err := store.put(one, two); err != nil {
		t.Fatal(err)
	}
	if err := store.setStage(Releasing, one); err != nil || one.Stage == Releasing {
		t.Fatal(err, one.Stage)
	}
	if err := store.forget(one.Key()); err != nil {
		t.Fatal(err)
	}
	disk.err = failed
	if err := store.put(one); !errors.Is(err, failed) {
		t.Errorf("put: %v", err)
	}
	if err := store.setStage(Releasing, two); !errors.Is(err, failed) {
		t.Errorf("set the stage: %v", err)
	}
	if err := store.forget(two.Key()); !errors.Is(err, failed) {
		t.Errorf("forget: %v", err)
	}
	disk.err, store.fail = nil, func(string) error { return failed }
	if err := store.forget(two.Key()); !errors.Is(err, failed) {
		t.Errorf("forget at a failpoint: %v", err)
	}
	if want := []string{"written one", "written two", "written one releasing", "forgotten one"}; !slices.Equal(heard, want) {
		t.Errorf("heard %q, want %q", heard, want)
	}
}

// The shared objects of a network go with its last attachment, and a record that a later ADD has replaced is not the
// one that goes.
func TestOwners(t *testing.T) {
	o := &owners{of: map[string]map[model.AttachmentKey]int64{}}
	first, second, other := recordOf("net", "first", 1), recordOf("net", "second", 2), recordOf("other", "first", 3)
	for _, r := range []Record{first, second, other} {
		o.written(r)
	}
	if o.last(first.Key()) || !o.last(other.Key()) {
		t.Errorf("last of net: %t, last of other: %t", o.last(first.Key()), o.last(other.Key()))
	}
	o.forgotten(second.Key())
	if !o.last(first.Key()) || o.last(second.Key()) {
		t.Errorf("with one left: the one is last: %t, the one that went: %t", o.last(first.Key()), o.last(second.Key()))
	}
	again := recordOf("net", "first", 9)
	o.written(again)
	if o.has(first) || !o.has(again) {
		t.Errorf("after another ADD: the old record: %t, the new one: %t", o.has(first), o.has(again))
	}
}

// A record is deleted also if the kernel has not deleted its links in time.
func TestReleaseWithLateReaper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		o := &owners{of: map[string]map[model.AttachmentKey]int64{}}
		q := &releaseQueue{
			owners: o, cooling: &cooling{of: map[string]int{}}, locks: &lockSet{main: newProcessLocks()},
			records:  &notifyingStore{store: &failing{}, forgotten: []func(model.AttachmentKey){o.forgotten}},
			rollback: &rollback{agent: true}, reaper: kernel.NewReaper(nil, log), // it does not run
			now: time.Now, log: log, wake: notify.New(),
		}
		rec := recordOf("net", "one", 1)
		o.written(rec)
		q.enqueue(rec)
		if err := q.drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if o.has(rec) {
			t.Error("the record is left")
		}
	})
}

// An address of two dead links cools until both are gone.
func TestCoolingCounts(t *testing.T) {
	c := &cooling{of: map[string]int{}}
	addrs := []netip.Addr{netip.MustParseAddr("10.0.0.1")}
	c.begin("net", addrs)
	c.begin("net", addrs)
	c.end("net", addrs)
	if !c.any("net", addrs) || c.any("other", addrs) {
		t.Errorf("after one of two: %t, in another network: %t", c.any("net", addrs), c.any("other", addrs))
	}
	c.end("net", addrs)
	c.end("net", addrs) // of a release that failed
	c.begin("net", addrs)
	if !c.any("net", addrs) {
		t.Error("a count below nothing hides the next dead link")
	}
}

func recordOf(network, container string, serial int64) Record {
	return Record{Serial: serial, Request: model.Request{Network: network, ContainerID: container, IfName: "eth0"}}
}

// TestOnlyStageDiffers: a record that an ADD has changed since it stored it as pending is encoded again.
func TestOnlyStageDiffers(t *testing.T) {
	stored := recordOf("net", "one", 1)
	for what, change := range map[string]func(r *Record){
		"acts":     func(r *Record) { r.Acts = append(r.Acts, Act{Kind: ActExec}) },
		"result":   func(r *Record) { r.Result = &model.Result{} },
		"observed": func(r *Record) { r.Observed.Tap = true },
		"standby":  func(r *Record) { r.Standby = true },
		"deferred": func(r *Record) { r.Deferred = &state.Fragment{} },
	} {
		r := &run{rec: stored}
		if r.onlyStageDiffers() {
			t.Errorf("%s: not stored yet", what)
		}
		r.recorded, r.stored = true, stored
		if !r.onlyStageDiffers() {
			t.Errorf("%s: not changed yet", what)
		}
		if change(&r.rec); r.onlyStageDiffers() {
			t.Errorf("%s was changed", what)
		}
	}
}
