// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"slices"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

func keptOf(id string, stage attach.Stage) attach.Record {
	return attach.Record{
		Stage: stage, Serial: 1, Request: model.Request{Network: "n", ContainerID: id, IfName: "eth0"},
		Acts: []attach.Act{{Kind: attach.ActApply, Fragment: &state.Fragment{Owner: id}}},
	}
}

// TestKept: a record is decoded once, or not at all if it was written by the same process; every change of its stage is
// seen. What is in the file decides: a text that another record was decoded from is decoded.
func TestKept(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	rec := keptOf("c", attach.Pending)
	get := func() attach.Record {
		t.Helper()
		r, found, err := l.Get(rec.Key())
		if err != nil || !found {
			t.Fatal(found, err)
		}
		return r
	}
	of := func(r attach.Record) *state.Fragment { return r.Acts[0].Fragment }
	put := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	put(l.Put(rec))
	if r := get(); of(r) == of(rec) || of(r) == of(get()) {
		t.Error("a pending record is kept, which its ADD may change")
	}
	put(l.SetStage(attach.Done, rec))
	rec.Stage = attach.Done
	if r := get(); of(r) != of(rec) || r.Stage != attach.Done || r.Version != attach.RecordVersion {
		t.Errorf("after SetStage: decoded, or not changed: %+v", r)
	}
	put(l.SetStage(attach.Releasing, get()))
	if r := get(); of(r) != of(rec) || r.Stage != attach.Releasing {
		t.Errorf("after SetStage: decoded, or not changed: %+v", r)
	}
	one, other := get(), get()
	one.Acts = append(one.Acts, attach.Act{Kind: attach.ActIPAM, Plugin: 1})
	other.Acts = append(other.Acts, attach.Act{Kind: attach.ActIPAM, Plugin: 2})
	if one.Acts[1].Plugin != 1 || len(get().Acts) != 1 {
		t.Error("acts that a caller appends are another caller's")
	}

	foreign := keptOf("c", attach.Done)
	foreign.Boot = "another"
	text, err := attach.Encode(foreign)
	put(err)
	put(l.db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(attachmentBucket)).Put(name(rec.Key()), text)
	}))
	if r := get(); r.Boot != "another" || of(r) == of(rec) {
		t.Errorf("not what is in the file: %+v", r)
	}
	if of(get()) != of(get()) {
		t.Error("a record is decoded twice")
	}
	put(l.Put(rec))
	if r := get(); of(r) != of(rec) || r.Boot != "" {
		t.Errorf("after Put: decoded, or not changed: %+v", r)
	}
	put(l.Delete(rec.Key()))
	if r, found, err := l.Get(rec.Key()); found || err != nil || len(l.kept.of) > 0 {
		t.Errorf("after Delete: %+v %t %v, %d kept", r, found, err, len(l.kept.of))
	}
}

// TestFailedWriteIsNotKept: after an error the record is what it was.
func TestFailedWriteIsNotKept(t *testing.T) {
	l, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	rec := keptOf("c", attach.Done)
	if err := l.Put(rec); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.SetStage(attach.Releasing, rec); err == nil {
		t.Fatal("written to a closed file")
	}
	if kept := l.kept.of[rec.Key()]; kept.rec.Stage != attach.Done {
		t.Errorf("kept in stage %s", kept.rec.Stage)
	}
}

// TestKeptIsBounded: no more records are kept than the bound, and all of them are found. Those of virtual machines,
// which phase 1 changes in place, are not kept.
func TestKeptIsBounded(t *testing.T) {
	l, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	var all []attach.Record
	for i := range most + 10 {
		all = append(all, keptOf(fmt.Sprint("c", i), attach.Done))
	}
	for chunk := range slices.Chunk(all, 50) {
		if err := l.Put(chunk...); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range all {
		if have, found, err := l.Get(r.Key()); err != nil || !found || have.Request.ContainerID != r.Request.ContainerID {
			t.Fatalf("%s: %+v %t %v", r.Key(), have, found, err)
		}
	}
	if n := len(l.kept.of); n != most {
		t.Errorf("%d are kept, want %d", n, most)
	}
	vms, rec := l.VMs(), keptOf("vm", attach.Done)
	if err := vms.Put(rec); err != nil {
		t.Fatal(err)
	}
	if have, _, err := vms.Get(rec.Key()); err != nil || have.Acts[0].Fragment == rec.Acts[0].Fragment {
		t.Errorf("a virtual machine's record is kept: %v", err)
	}
}
