// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/flock"
	"github.com/weft-net/weft/internal/model"
)

// place is a directory that is locked for this process's installation.
type place struct {
	dir  string
	lock *os.File
}

// open locks a directory and removes what killed runs have left in it.
func open(ctx context.Context, dir, hint string) (*place, error) {
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, model.Errorf(model.CodeIO, hint, "directory %s does not exist", dir)
	}
	if err != nil {
		return nil, withHint(err)
	}
	p := &place{dir: dir, lock: f}
	if info, err := f.Stat(); err != nil || !info.IsDir() {
		p.close()
		return nil, model.Errorf(model.CodeIO, hint, "%s is not a directory", dir)
	}
	if err := p.acquire(ctx); err != nil {
		p.close()
		return nil, err
	}
	if err := atomicfile.Sweep(dir); err != nil {
		p.close()
		return nil, withHint(err)
	}
	return p, nil
}

// acquire waits up to ten seconds for another run.
func (p *place) acquire(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err := flock.Wait(limited, p.lock.Fd(), flock.Exclusive)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return interrupted(ctx)
	case limited.Err() != nil:
		return model.Errorf(model.CodeTryAgain, "wait for it", "directory %s: another weft install is running there", p.dir)
	}
	return model.Errorf(model.CodeIO, "", "lock of directory %s: %w", p.dir, err)
}

// close unlocks the directory; a nil place is not an error.
func (p *place) close() {
	if p != nil {
		_ = p.lock.Close()
	}
}

func (p *place) path(name string) string { return filepath.Join(p.dir, name) }

// write writes a file with that content.
func (p *place) write(name string, content io.Reader, mode fs.FileMode) error {
	err := atomicfile.WriteFrom(p.path(name), func(w io.Writer) error {
		_, err := io.Copy(w, content)
		return err
	}, mode, atomicfile.Durable)
	return withHint(err)
}

// symlink makes NAME a symbolic link.
func (p *place) symlink(name, target string) error {
	return withHint(atomicfile.Symlink(target, p.path(name), atomicfile.Durable))
}

// linkCopy links the file NAME to a second name, replacing an existing file.
func (p *place) linkCopy(name, second string) error {
	err := atomicfile.Link(p.path(name), p.path(second), atomicfile.Durable)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EMLINK) {
		return p.duplicate(name, second) // the file system has no hard links
	}
	return withHint(err)
}

// duplicate is linkCopy by copying.
func (p *place) duplicate(name, second string) error {
	if target, err := os.Readlink(p.path(name)); err == nil {
		return p.symlink(second, target)
	}
	f, err := os.Open(p.path(name))
	if err != nil {
		return withHint(err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return withHint(err)
	}
	return p.write(second, f, info.Mode().Perm())
}

// remove deletes NAME.
func (p *place) remove(name string) error {
	if err := os.Remove(p.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return withHint(err)
	}
	return nil
}

// rename renames the file NAME.
func (p *place) rename(name, to string) error {
	if err := os.Rename(p.path(name), p.path(to)); err != nil {
		return withHint(err)
	}
	return nil
}

// same reports whether two files have the same content.
func same(a, b string) (bool, error) {
	x, err := os.Open(a)
	if err != nil {
		return false, err
	}
	defer func() { _ = x.Close() }()
	y, err := os.Open(b)
	if err != nil {
		return false, err
	}
	defer func() { _ = y.Close() }()
	bx, by := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, ex := io.ReadFull(x, bx)
		m, ey := io.ReadFull(y, by)
		if !bytes.Equal(bx[:n], by[:m]) {
			return false, nil
		}
		if ex != nil || ey != nil {
			return ended(ex) && ended(ey), errors.Join(unlessEnded(ex), unlessEnded(ey))
		}
	}
}

func ended(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

func unlessEnded(err error) error {
	if ended(err) {
		return nil
	}
	return err
}

// withHint adds a hint to an error of the file system; nil is no error.
func withHint(err error) error {
	if err == nil {
		return nil
	}
	hint := ""
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		hint = "free some space; no file is half-written"
	case errors.Is(err, syscall.EROFS):
		hint = "mount it writable, or name another directory"
	case errors.Is(err, fs.ErrPermission):
		hint = "run it as root, or as the owner of the directory"
	}
	return model.Errorf(model.CodeIO, hint, "%w", err)
}
