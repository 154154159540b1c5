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

// Durability is what a file survives.
type Durability int

const (
	// CrashSafe files are whole whenever the process is killed. A power loss may take the new content, or leave an empty
	// file.
	CrashSafe Durability = iota + 1
	// Durable files are on disk when the call returns.
	Durable
)

// Write replaces the file at path. Its mode does not depend on the umask.
func Write(path string, content []byte, mode fs.FileMode, d Durability) error {
	return write(path, whole(content), mode, d, os.Rename)
}

// WriteFrom is Write of what fill writes. When fill fails, the file stays as it was.
func WriteFrom(path string, fill func(io.Writer) error, mode fs.FileMode, d Durability) error {
	return write(path, fill, mode, d, os.Rename)
}

// Create is Write that replaces nothing: it fails with fs.ErrExist where there is a file, or another writer was faster.
func Create(path string, content []byte, mode fs.FileMode, d Durability) error {
	return write(path, whole(content), mode, d, func(temp, path string) error {
		if err := os.Link(temp, path); err != nil {
			return err // the temporary file is removed once, by whoever fails: its name may be another writer's by then
		}
		return os.Remove(temp)
	})
}

// WriteVia is Write by a temporary file of the caller's choice, in the same file system. The caller makes sure that
// nobody else uses it meanwhile, and removes what a killed writer left in it: a file that goes with a lock, for
// instance.
func WriteVia(temp, path string, content []byte, mode fs.FileMode, d Durability) error {
	f, err := os.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	return finish(f, path, whole(content), mode, d, os.Rename)
}

// whole writes content.
func whole(content []byte) func(io.Writer) error {
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

// finish fills an open temporary file and puts it in place.
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
	// Closed last: until then the lock says that the temporary file has a writer.
	return errors.Join(f.Close(), syncDir(path, d))
}

// Symlink makes path a symbolic link to target, replacing what has that name. A link cannot be locked: the caller makes
// sure that nobody else replaces path meanwhile.
func Symlink(target, path string, d Durability) error {
	return replaceByLink(path, d, func(temp string) error { return os.Symlink(target, temp) })
}

// Link gives the file at old the second name path, replacing what has that name. The caller makes sure that nobody else
// replaces path meanwhile.
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
	// rename(2) does nothing when both names are the same file already.
	return errors.Join(remove(temp), syncDir(path, d))
}

// Remove removes the file, and what killed writers of it left. It does not mind when there is none.
func Remove(path string) error {
	errs := []error{remove(path)}
	for n := 0; ; n++ {
		dead, err := removeDead(tempName(path, n))
		if errs = append(errs, err); !dead || err != nil {
			return errors.Join(errs...)
		}
	}
}

// syncDir waits until the names in the directory of path are on disk.
func syncDir(path string, d Durability) error {
	if d != Durable {
		return nil
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	err = dir.Sync()
	if errors.Is(err, syscall.EINVAL) { // a file system that has no such thing
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
