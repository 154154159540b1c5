// SPDX-License-Identifier: Apache-2.0

// Package ledger keeps the agent's records, of attachments and of virtual machines in pods, in one bbolt file. Every
// write is in the kernel's page cache when Put returns, in a transaction of its own or one with others that came at the
// same time: it survives SIGKILL. It is not synced to the disk: what it tells of dies with the machine as well, and a
// record of another boot is dropped by attach.Recover.
//
// One process has the file open; commands ask the agent.
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
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
)

const (
	fileName    = "ledger.db"
	attachments = "attachments" // the bucket of their records
	machines    = "machines"    // that of virtual machines'
	lockWait    = 2 * time.Second
	// addressSpace is reserved for the map of the file, so that it is not mapped anew while it grows.
	addressSpace = 32 << 20
)

// Ledger is an open ledger. It is safe for concurrent use. Its own records are those of attachments.
type Ledger struct {
	Records
	health health
}

// Records are the ledger's records of one kind.
type Records struct {
	db     *bbolt.DB
	out    *writer
	dir    string
	bucket string
}

// Machines are the records of virtual machines: nobody who goes through the attachments meets them.
func (l *Ledger) Machines() *Records {
	return &Records{db: l.db, out: l.out, dir: l.dir, bucket: machines}
}

// Open opens, or makes, the ledger in dir. A file that a power loss has torn is put aside; one that was torn in this
// boot is an error.
func Open(dir string) (*Ledger, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, unusable(dir, err)
	}
	path := filepath.Join(dir, fileName)
	err := verify(path)
	if errors.Is(err, berrors.ErrInvalid) && !sameBoot(dir) {
		// The machine has gone down since, and with it all that the file told of but addresses, which GC finds.
		err = os.Rename(path, path+".torn")
	}
	if err != nil {
		return nil, unusable(dir, err)
	}
	l, err := open(dir)
	if err != nil {
		return nil, err
	}
	noteBoot(dir)
	l.keep()
	return l, nil
}

func open(dir string) (*Ledger, error) {
	db, err := bbolt.Open(filepath.Join(dir, fileName), 0o600, &bbolt.Options{
		Timeout: lockWait, NoSync: true, NoGrowSync: true, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType,
		InitialMmapSize: addressSpace, NoStatistics: true,
	})
	if err != nil {
		return nil, unusable(dir, err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err1 := tx.CreateBucketIfNotExists([]byte(attachments))
		_, err2 := tx.CreateBucketIfNotExists([]byte(machines))
		return errors.Join(err1, err2)
	})
	if err != nil {
		return nil, errors.Join(unusable(dir, err), db.Close())
	}
	return &Ledger{Records: Records{db: db, out: newWriter(db), dir: dir, bucket: attachments}}, nil
}

// Close closes the file.
func (l *Ledger) Close() error {
	if err := l.db.Close(); err != nil {
		return fmt.Errorf("ledger %s: %w", l.dir, err)
	}
	return nil
}

// Put writes records, all or none. It refuses to write over one of a newer version.
func (l *Records) Put(records ...attach.Record) error {
	texts := make([][]byte, len(records))
	releasing := true
	for i, r := range records {
		var err error
		if texts[i], err = attach.Encode(r); err != nil {
			return err
		}
		releasing = releasing && r.Stage == attach.Releasing
	}
	put := func() error {
		return l.fault(l.write(func(bk *bbolt.Bucket) error { return l.putAll(bk, records, texts) }))
	}
	if releasing {
		return l.withReserve(put)
	}
	return put()
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

// check refuses to write where a record of a newer version stands.
func check(bk *bbolt.Bucket, where string, k []byte) error {
	if old := bk.Get(k); old != nil {
		return attach.CheckStored(where, old)
	}
	return nil
}

// Get reads one record.
func (l *Records) Get(key model.AttachmentKey) (attach.Record, bool, error) {
	var r attach.Record
	found := false
	err := l.db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(l.bucket)).Get(name(key))
		if b == nil {
			return nil
		}
		var err error
		r, err = attach.Decode(l.where(key), b)
		found = err == nil
		return err
	})
	return r, found, l.fault(err)
}

// List reads all records, by container, network and interface. The error joins what is wrong with unreadable ones.
func (l *Records) List() ([]attach.Record, error) {
	return l.list(func([]byte) bool { return true })
}

// InNamespace is List for the attachments of one network namespace. The others are hardly looked at.
func (l *Records) InNamespace(id uint64) ([]attach.Record, error) {
	words := []byte(`"netnsID":` + strconv.FormatUint(id, 10) + `,`)
	all, err := l.list(func(b []byte) bool { return bytes.Contains(b, words) })
	return slices.DeleteFunc(all, func(r attach.Record) bool { return r.NetnsID != id }), err
}

// list reads the records whose stored form is wanted.
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
	return out, errors.Join(append(bad, l.fault(err))...)
}

// Delete removes a record; one that is not there is no error, one of a newer version is.
func (l *Records) Delete(key model.AttachmentKey) error {
	return l.withReserve(func() error {
		return l.update(key, func(bk *bbolt.Bucket, k []byte) error { return bk.Delete(k) })
	})
}

// write does one transaction, with others' or alone.
func (l *Records) write(do func(bk *bbolt.Bucket) error) error { return l.out.write(l.bucket, do) }

func (l *Records) update(key model.AttachmentKey, change func(bk *bbolt.Bucket, k []byte) error) error {
	return l.fault(l.write(func(bk *bbolt.Bucket) error {
		k := name(key)
		if err := check(bk, l.where(key), k); err != nil {
			return err
		}
		return change(bk, k)
	}))
}

// name is a record's key in the bucket, a container's side by side; no part can hold a zero.
func name(k model.AttachmentKey) []byte {
	return []byte(k.ContainerID + "\x00" + k.Network + "\x00" + k.IfName)
}

func (l *Records) where(k model.AttachmentKey) string {
	return "ledger " + l.dir + ": record " + k.String()
}

// fault turns an error of the file into one with a code and a way out.
func (l *Records) fault(err error) error {
	var f *model.Fault
	if err == nil || errors.As(err, &f) {
		return err
	}
	return model.Faultf(model.CodeIO, "is the file system full or read-only?", "ledger %s: %w", l.dir, err)
}

func unusable(dir string, err error) error {
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return model.Faultf(model.CodeIO, "stop the other agent, or choose another --state-dir",
			"state directory %q: another process has its ledger open", dir)
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum),
		errors.Is(err, berrors.ErrVersionMismatch):
		return model.Faultf(model.CodeIO, "move the file away; GC then finds what it told of by its marks",
			"state directory %q: %s is no ledger: %w", dir, fileName, err)
	}
	return model.Faultf(model.CodeIO, "choose a --state-dir that can be written", "state directory %q: %w", dir, err)
}
