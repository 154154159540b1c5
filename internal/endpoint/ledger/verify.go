// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/weft-net/weft/internal/boot"
)

const bootName = "boot" // the file with the boot id of the last Open

// sameBoot reports whether the ledger was opened in this boot before; true if unknown.
func sameBoot(dir string) bool {
	then, err1 := os.ReadFile(filepath.Join(dir, bootName))
	now, err2 := boot.ID()
	return err1 != nil || err2 != nil || string(bytes.TrimSpace(then)) == now
}

// writeBoot stores the boot id. If that fails, a corrupt file is not renamed at the next start.
func writeBoot(dir string) {
	now, err := boot.ID()
	if err != nil {
		return
	}
	path := filepath.Join(dir, bootName)
	if then, err := os.ReadFile(path); err != nil || string(bytes.TrimSpace(then)) != now {
		_ = os.WriteFile(path, []byte(now+"\n"), 0o600)
	}
}

// verify reads every page of an existing file. bbolt trusts its pages, reads them through a memory mapping, and scans
// them in its own goroutine when it opens a file for writing: a corrupt file would crash the process.
func verify(path string) (err error) {
	st, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && st.Size() == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", berrors.ErrInvalid, p)
		}
	}()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockWait, ReadOnly: true, NoStatistics: true})
	if errors.Is(err, berrors.ErrTimeout) || errors.Is(err, os.ErrPermission) {
		return err
	}
	if err != nil {
		return fmt.Errorf("%w: %w", berrors.ErrInvalid, err)
	}
	defer func() { _ = db.Close() }()
	return db.View(func(tx *bbolt.Tx) error {
		return errors.Join(verifyBucket(tx.Bucket([]byte(attachmentBucket))), verifyBucket(tx.Bucket([]byte(vmBucket))))
	})
}

// verifyBucket reads a bucket; nil: an earlier version did not create it.
func verifyBucket(bk *bbolt.Bucket) error {
	if bk == nil {
		return nil
	}
	last := ""
	return bk.ForEach(func(k, b []byte) error {
		if string(k) <= last || len(b) == 0 || b[0] != '{' || b[len(b)-1] != '}' {
			return berrors.ErrInvalid
		}
		last = string(k)
		return nil
	})
}
