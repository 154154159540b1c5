// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// Deleting a record writes pages. A reserve file is removed on a full disk to make that possible. Bytes.
const (
	reserveName = "reserve"
	reserveSize = 32 << 10
)

// ensureReserve creates the reserve file if it is missing. A full disk is no error.
func (l *Records) ensureReserve() {
	path := filepath.Join(l.dir, reserveName)
	if st, err := os.Stat(path); err == nil && st.Size() == reserveSize {
		return
	}
	if err := os.WriteFile(path, make([]byte, reserveSize), 0o600); err != nil {
		_ = os.Remove(path)
	}
}

// withReserve calls f, and again without the reserve file if the disk is full.
func (l *Records) withReserve(f func() error) error {
	err := f()
	if !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	if os.Remove(filepath.Join(l.dir, reserveName)) != nil {
		return err
	}
	err = f()
	l.ensureReserve()
	return err
}
