// SPDX-License-Identifier: Apache-2.0

// Package ledger is the agent's write-ahead log: it stores the records of attachments and of virtual machines in pods,
// in one bbolt file. Concurrent writes share a transaction. When Put returns, the write is in the kernel's page cache
// and survives SIGKILL. It is not synced to the disk: the recorded kernel objects do not survive a reboot either, and
// attach.Recover drops records of another boot.
//
// Only the agent opens the file; commands query the agent.
package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
)

const (
	// FileName is the name of the ledger in a state directory.
	FileName         = "ledger.db"
	attachmentBucket = "attachments" // the bucket of the records of attachments
	vmBucket         = "machines"    // the bucket of the records of virtual machines
	lockWait         = 2 * time.Second
	// addressSpace is reserved for the mapping of the file, so that it is not remapped while it grows.
	addressSpace = 32 << 20
)

// Ledger is an open ledger. It is safe for concurrent use. Its embedded Records are those of attachments.
type Ledger struct {
	Records
	health health
}

// Records are the ledger's records of one bucket.
type Records struct {
	db      *bbolt.DB
	out     *writer
	dir     string
	bucket  string
	version *atomic.Uint64
	kept    *kept // nil in the bucket of virtual machines
}

// VMs returns the records of virtual machines, which are separate from those of attachments.
func (l *Ledger) VMs() *Records {
	return &Records{db: l.db, out: l.out, dir: l.dir, bucket: vmBucket, version: l.version}
}

// Open opens or creates the ledger in dir. A file that a power loss has corrupted is renamed; one that was corrupted
// during this boot is an error.
func Open(dir string) (*Ledger, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, unusable(dir, err)
	}
	path := filepath.Join(dir, FileName)
	err := verify(path)
	if errors.Is(err, berrors.ErrInvalid) && !sameBoot(dir) {
		// The node has rebooted since: the recorded objects are gone, except for addresses, which GC releases.
		err = os.Rename(path, path+".torn")
	}
	if err != nil {
		return nil, unusable(dir, err)
	}
	l, err := open(dir)
	if err != nil {
		return nil, err
	}
	writeBoot(dir)
	l.ensureReserve()
	return l, nil
}

func open(dir string) (*Ledger, error) {
	db, err := bbolt.Open(filepath.Join(dir, FileName), 0o600, &bbolt.Options{
		Timeout: lockWait, NoSync: true, NoGrowSync: true, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType,
		InitialMmapSize: addressSpace, NoStatistics: true,
	})
	if err != nil {
		return nil, unusable(dir, err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err1 := tx.CreateBucketIfNotExists([]byte(attachmentBucket))
		_, err2 := tx.CreateBucketIfNotExists([]byte(vmBucket))
		return errors.Join(err1, err2)
	})
	if err != nil {
		return nil, errors.Join(unusable(dir, err), db.Close())
	}
	return &Ledger{Records: Records{
		db: db, out: newWriter(db), dir: dir, bucket: attachmentBucket, version: new(atomic.Uint64),
		kept: newKept(),
	}}, nil
}

// Close closes the file.
func (l *Ledger) Close() error {
	if err := l.db.Close(); err != nil {
		return fmt.Errorf("ledger %s: %w", l.dir, err)
	}
	return nil
}

// Put writes records, all or none. It does not overwrite a record of a newer version.
func (l *Records) Put(records ...attach.Record) error {
	texts := make([][]byte, len(records))
	for i, r := range records {
		var err error
		if texts[i], err = attach.Encode(r); err != nil {
			return err
		}
	}
	err := l.write(func(bk *bbolt.Bucket) error { return l.putAll(bk, records, texts) })
	if err == nil {
		l.keep(records, texts)
	}
	return l.wrap(err)
}

func (l *Records) keep(records []attach.Record, texts [][]byte) {
	for i, r := range records {
		l.kept.put(r, texts[i])
	}
}

// SetStage writes records in another stage than theirs, all or none. They are not encoded again.
func (l *Records) SetStage(stage attach.Stage, records ...attach.Record) error {
	set := func() error {
		texts := make([][]byte, len(records))
		err := l.write(func(bk *bbolt.Bucket) error {
			for i, r := range records {
				var err error
				if texts[i], err = attach.Restage(bk.Get(name(r.Key())), r, stage); err != nil {
					return err
				}
			}
			return l.putAll(bk, records, texts)
		})
		if err == nil {
			staged := slices.Clone(records)
			for i := range staged {
				staged[i].Stage = stage
			}
			l.keep(staged, texts)
		}
		return l.wrap(err)
	}
	if stage == attach.Releasing {
		return l.withReserve(set)
	}
	return set()
}

func (l *Records) putAll(bk *bbolt.Bucket, records []attach.Record, texts [][]byte) error {
	for _, r := range records {
		if err := check(bk, l.where(r.Key()), name(r.Key())); err != nil {
			return err
		}
	}
	for i, r := range records {
		if err := bk.Put(name(r.Key()), texts[i]); err != nil {
			return err
		}
	}
	return nil
}

// check returns an error if the record is of a newer version.
func check(bk *bbolt.Bucket, where string, k []byte) error {
	if old := bk.Get(k); old != nil {
		return attach.CheckStored(where, old)
	}
	return nil
}

// Get reads one record. Callers share what it refers to, and do not change it.
func (l *Records) Get(key model.AttachmentKey) (attach.Record, bool, error) {
	var r attach.Record
	found := false
	err := l.db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(l.bucket)).Get(name(key))
		if b == nil {
			return nil
		}
		if r, found = l.kept.get(key, b); found {
			return nil
		}
		var err error
		if r, err = attach.Decode(l.where(key), b); err != nil {
			return err
		}
		found = true
		l.kept.put(r, b)
		return nil
	})
	return r, found, l.wrap(err)
}

// List reads all records, by container, network and interface. The error joins those of unreadable ones.
func (l *Records) List() ([]attach.Record, error) {
	return l.list(func([]byte) bool { return true })
}

// InNamespace returns the attachments of one network namespace. It decodes only matching records.
func (l *Records) InNamespace(id uint64) ([]attach.Record, error) {
	words := []byte(`"netnsID":` + strconv.FormatUint(id, 10) + `,`)
	all, err := l.list(func(b []byte) bool { return bytes.Contains(b, words) })
	return slices.DeleteFunc(all, func(r attach.Record) bool { return r.NetnsID != id }), err
}

// list decodes the records whose stored form is wanted.
func (l *Records) list(wanted func(stored []byte) bool) ([]attach.Record, error) {
	var out []attach.Record
	var bad []error
	err := l.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(l.bucket)).ForEach(func(k, b []byte) error {
			if !wanted(b) {
				return nil
			}
			r, err := attach.Decode("ledger "+l.dir+": record "+strings.ReplaceAll(string(k), "\x00", "/"), b)
			if err != nil {
				bad = append(bad, err)
				return nil
			}
			out = append(out, r)
			return nil
		})
	})
	return out, errors.Join(append(bad, l.wrap(err))...)
}

// Delete removes a record. A missing one is no error; one of a newer version is.
func (l *Records) Delete(key model.AttachmentKey) error {
	l.kept.drop(key)
	return l.withReserve(func() error {
		return l.update(key, func(bk *bbolt.Bucket, k []byte) error { return bk.Delete(k) })
	})
}

// write performs a write, in a transaction that it may share.
func (l *Records) write(do func(bk *bbolt.Bucket) error) error {
	defer l.version.Add(1) // also after an error: that a change is not seen would be worse
	return l.out.write(l.bucket, do)
}

// Version is another number after each change of the records: who keeps what it has read compares it.
func (l *Records) Version() uint64 { return l.version.Load() }

func (l *Records) update(key model.AttachmentKey, change func(bk *bbolt.Bucket, k []byte) error) error {
	return l.wrap(l.write(func(bk *bbolt.Bucket) error {
		k := name(key)
		if err := check(bk, l.where(key), k); err != nil {
			return err
		}
		return change(bk, k)
	}))
}

// name returns a record's key in the bucket. Those of a container are adjacent; no part contains a NUL.
func name(k model.AttachmentKey) []byte {
	return []byte(k.ContainerID + "\x00" + k.Network + "\x00" + k.IfName)
}

func (l *Records) where(k model.AttachmentKey) string {
	return "ledger " + l.dir + ": record " + k.String()
}

// wrap adds a code and a hint to an error of the file.
func (l *Records) wrap(err error) error {
	var f *model.Error
	if err == nil || errors.As(err, &f) {
		return err
	}
	return model.Errorf(model.CodeIO, "is the file system full or read-only?", "ledger %s: %w", l.dir, err)
}

func unusable(dir string, err error) error {
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return model.Errorf(model.CodeIO, "stop the other agent, or choose another --state-dir",
			"state directory %q: another process has its ledger open", dir)
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum),
		errors.Is(err, berrors.ErrVersionMismatch):
		return model.Errorf(model.CodeIO, "move the file away; GC then finds the recorded attachments by their marks",
			"state directory %q: %s is not a ledger: %w", dir, FileName, err)
	}
	return model.Errorf(model.CodeIO, "choose a writable --state-dir", "state directory %q: %w", dir, err)
}
