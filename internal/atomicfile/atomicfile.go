// SPDX-License-Identifier: Apache-2.0

package atomicfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Durability is what the content of a file survives.
type Durability int

const (
	// CrashSafe files are complete at whatever moment the process is killed. After a power loss the file may be empty.
	CrashSafe Durability = iota + 1
	// Durable files are on disk when the call returns.
	Durable
)

// Write replaces the file at path. Its mode does not depend on the umask.
func Write(path string, content []byte, mode fs.FileMode, d Durability) error {
	return write(path, writerOf(content), mode, d, os.Rename)
}

// WriteFrom is like Write, with the content that fill writes. When fill fails, the file does not change.
func WriteFrom(path string, fill func(io.Writer) error, mode fs.FileMode, d Durability) error {
	return write(path, fill, mode, d, os.Rename)
}

// Create is like Write, but never replaces a file: it fails with fs.ErrExist when there is one, or another writer was
// faster.
func Create(path string, content []byte, mode fs.FileMode, d Durability) error {
	return write(path, writerOf(content), mode, d, func(temp, path string) error {
		if err := os.Link(temp, path); err != nil {
			return err // finish removes the temporary file: its name may be another writer's by then
		}
		return os.Remove(temp)
	})
}

// WriteVia is like Write, with a temporary file that the caller chooses in the same file system. The caller ensures
// that no other process uses it at the same time, and removes what a killed writer left in it. A file that belongs to a
// lock is such a file, for instance.
func WriteVia(temp, path string, content []byte, mode fs.FileMode, d Durability) error {
	f, err := os.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	return finish(f, path, writerOf(content), mode, d, os.Rename)
}

// writerOf returns a function that writes content.
func writerOf(content []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	}
}

func write(
	path string, fill func(io.Writer) error, mode fs.FileMode, d Durability, place func(temp, path string) error,
) error {
	f, err := openTemp(path)
	if err != nil {
		return err
	}
	return finish(f, path, fill, mode, d, place)
}

// finish fills an open temporary file and moves it to path.
func finish(
	f *os.File, path string, fill func(io.Writer) error, mode fs.FileMode, d Durability,
	place func(temp, path string) error,
) error {
	temp := f.Name()
	err := fill(f)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil && d == Durable {
		err = f.Sync()
	}
	if err == nil {
		err = place(temp, path)
	}
	if err != nil {
		_ = os.Remove(temp)
		return errors.Join(err, f.Close())
	}
	// Closed last: until then the lock shows that the temporary file has a writer.
	return errors.Join(f.Close(), syncDir(path, d))
}

// Symlink makes path a symbolic link to target, replacing a file of that name. A link cannot be locked: the caller
// ensures that nothing else replaces path at the same time.
func Symlink(target, path string, d Durability) error {
	return replaceByLink(path, d, func(temp string) error { return os.Symlink(target, temp) })
}

// Link makes path a hard link to old, replacing a file of that name. The caller ensures that nothing else replaces path
// at the same time.
func Link(old, path string, d Durability) error {
	return replaceByLink(path, d, func(temp string) error { return os.Link(old, temp) })
}

func replaceByLink(path string, d Durability, link func(temp string) error) error {
	temp := tempName(path, 0)
	if err := remove(temp); err != nil {
		return err
	}
	if err := link(temp); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return errors.Join(err, remove(temp))
	}
	// rename(2) does nothing when both names are hard links to the same file.
	return errors.Join(remove(temp), syncDir(path, d))
}

// Remove removes the file and the temporary files of killed writers. A missing file is no error.
func Remove(path string) error {
	errs := []error{remove(path)}
	for n := 0; ; n++ {
		dead, err := removeDead(tempName(path, n))
		if errs = append(errs, err); !dead || err != nil {
			return errors.Join(errs...)
		}
	}
}

// syncDir waits until the entries of the directory of path are on disk.
func syncDir(path string, d Durability) error {
	if d != Durable {
		return nil
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	err = dir.Sync()
	if errors.Is(err, syscall.EINVAL) { // the file system cannot sync directories
		err = nil
	}
	return errors.Join(err, dir.Close())
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
