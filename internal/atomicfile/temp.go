// SPDX-License-Identifier: Apache-2.0

package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const (
	tempPrefix = ".weft-new-"
	tempSuffix = ".tmp"
	// maxName is how many bytes of a file's name its temporary file's name includes: a name has at most 255 bytes. Two
	// files with that beginning in common get different temporary files by the lock.
	maxName = 200
)

// IsTemp reports whether a file of that name is a temporary one.
func IsTemp(name string) bool {
	return strings.HasPrefix(name, tempPrefix) && strings.HasSuffix(name, tempSuffix)
}

// tempName returns the n-th name of the temporary file of path.
func tempName(path string, n int) string {
	dir, name := filepath.Split(path)
	name = tempPrefix + name[:min(len(name), maxName)]
	if n > 0 {
		name += "." + strconv.Itoa(n)
	}
	return dir + name + tempSuffix
}

// openTemp creates the temporary file of path and locks it.
func openTemp(path string) (*os.File, error) {
	for n := 0; ; {
		temp := tempName(path, n)
		f, err := os.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			dead, err := removeDead(temp)
			if err != nil {
				return nil, err
			}
			if !dead {
				n++
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		ours, err := lock(f, temp)
		if ours {
			return f, nil
		}
		// Between the two calls another process took the file for an abandoned one, and removes it.
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
	}
}

// removeDead removes a temporary file whose writer is gone; dead is false while it has a writer, and when there is no
// such file.
func removeDead(temp string) (dead bool, err error) {
	f, err := os.OpenFile(temp, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case errors.Is(err, syscall.ELOOP): // a symbolic link, which has no lock
		return true, remove(temp)
	case err != nil:
		return false, err
	}
	defer func() { _ = f.Close() }()
	ours, err := lock(f, temp)
	if !ours || err != nil {
		return false, err
	}
	return true, remove(temp)
}

// lock takes the lock of an open temporary file; ours is false when another process holds it, or the file was removed.
func lock(f *os.File, temp string) (ours bool, err error) {
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	if err != nil {
		return false, &fs.PathError{Op: "flock", Path: temp, Err: err}
	}
	mine, err := f.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Lstat(temp)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(mine, there), err
}

// Sweep removes the temporary files of killed writers from a directory. It may be called while others write.
func Sweep(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if IsTemp(e.Name()) {
			_, err := removeDead(filepath.Join(dir, e.Name()))
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
