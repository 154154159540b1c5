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

// place is a directory that this process alone installs into.
type place struct {
	dir  string
	lock *os.File
}

// open locks a directory and clears away what killed runs have left in it.
func open(ctx context.Context, dir, hint string) (*place, error) {
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, model.Faultf(model.CodeIO, hint, "directory %s does not exist", dir)
	}
	if err != nil {
		return nil, trouble(err)
	}
	p := &place{dir: dir, lock: f}
	if info, err := f.Stat(); err != nil || !info.IsDir() {
		p.close()
		return nil, model.Faultf(model.CodeIO, hint, "%s is no directory", dir)
	}
	if err := p.acquire(ctx); err != nil {
		p.close()
		return nil, err
	}
	if err := atomicfile.Sweep(dir); err != nil {
		p.close()
		return nil, trouble(err)
	}
	return p, nil
}

// acquire waits ten seconds for another run.
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
		return model.Faultf(model.CodeTryAgain, "wait for it", "directory %s: another weft install is at work there", p.dir)
	}
	return model.Faultf(model.CodeIO, "", "lock of directory %s: %w", p.dir, err)
}

// close unlocks the directory; nobody's is no harm.
func (p *place) close() {
	if p != nil {
		_ = p.lock.Close()
	}
}

func (p *place) path(name string) string { return filepath.Join(p.dir, name) }

// put makes NAME a file with that content.
func (p *place) put(name string, content io.Reader, mode fs.FileMode) error {
	err := atomicfile.WriteFrom(p.path(name), func(w io.Writer) error {
		_, err := io.Copy(w, content)
		return err
	}, mode, atomicfile.Durable)
	return trouble(err)
}

// point makes NAME a symbolic link.
func (p *place) point(name, target string) error {
	return trouble(atomicfile.Symlink(target, p.path(name), atomicfile.Durable))
}

// double gives the file NAME a second name, replacing what has that name.
func (p *place) double(name, second string) error {
	err := atomicfile.Link(p.path(name), p.path(second), atomicfile.Durable)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EMLINK) {
		return p.duplicate(name, second) // a file system without hard links
	}
	return trouble(err)
}

// duplicate is double by copying.
func (p *place) duplicate(name, second string) error {
	if target, err := os.Readlink(p.path(name)); err == nil {
		return p.point(second, target)
	}
	f, err := os.Open(p.path(name))
	if err != nil {
		return trouble(err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return trouble(err)
	}
	return p.put(second, f, info.Mode().Perm())
}

// remove takes NAME away.
func (p *place) remove(name string) error {
	if err := os.Remove(p.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return trouble(err)
	}
	return nil
}

// rename gives the file NAME the name to.
func (p *place) rename(name, to string) error {
	if err := os.Rename(p.path(name), p.path(to)); err != nil {
		return trouble(err)
	}
	return nil
}

// same tells whether two files have one content.
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

// trouble says what to do about an error of the file system; nil is none.
func trouble(err error) error {
	if err == nil {
		return nil
	}
	hint := ""
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		hint = "make room there; nothing is half-written"
	case errors.Is(err, syscall.EROFS):
		hint = "mount it writable, or name another directory"
	case errors.Is(err, fs.ErrPermission):
		hint = "run it as root, or as the owner of the directory"
	}
	return model.Faultf(model.CodeIO, hint, "%w", err)
}
