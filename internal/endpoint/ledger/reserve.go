// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// A record is deleted by writing pages, so on a full disk there must be room for that: a file that gives way. Bytes.
const (
	reserveName = "reserve"
	reserveSize = 32 << 10
)

// keep makes the reserve if it is not there. Without room there is none; that is no error.
func (l *Records) keep() {
	path := filepath.Join(l.dir, reserveName)
	if st, err := os.Stat(path); err == nil && st.Size() == reserveSize {
		return
	}
	if err := os.WriteFile(path, make([]byte, reserveSize), 0o600); err != nil {
		_ = os.Remove(path)
	}
}

// withReserve does what must not fail for want of room.
func (l *Records) withReserve(f func() error) error {
	err := f()
	if !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	if os.Remove(filepath.Join(l.dir, reserveName)) != nil {
		return err
	}
	err = f()
	l.keep()
	return err
}
