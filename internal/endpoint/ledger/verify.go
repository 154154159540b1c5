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

const bootName = "boot" // the file that says in which boot the ledger was last opened

// sameBoot tells whether the ledger was opened in this boot before. When in doubt it was.
func sameBoot(dir string) bool {
	then, err1 := os.ReadFile(filepath.Join(dir, bootName))
	now, err2 := boot.ID()
	return err1 != nil || err2 != nil || string(bytes.TrimSpace(then)) == now
}

// noteBoot writes down which boot this is. Without it a torn file is not put aside, no more.
func noteBoot(dir string) {
	now, err := boot.ID()
	if err != nil {
		return
	}
	path := filepath.Join(dir, bootName)
	if then, err := os.ReadFile(path); err != nil || string(bytes.TrimSpace(then)) != now {
		_ = os.WriteFile(path, []byte(now+"\n"), 0o600)
	}
}

// verify reads every page of a file that is there. The library trusts its pages, reads them through a map of the file,
// and looks at all of them in a goroutine of its own when it opens a file for writing: a torn one would take the
// process down.
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
		return errors.Join(verifyBucket(tx.Bucket([]byte(attachments))), verifyBucket(tx.Bucket([]byte(machines))))
	})
}

// verifyBucket reads a bucket; nil is one that an earlier version has not made.
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
