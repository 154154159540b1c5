// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/model"
)

// A file is written as draft+NAME+unread: no runtime takes that ending for a configuration.
const (
	draft  = ".weft-new-"
	unread = ".tmp"
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
	if err := p.clear(); err != nil {
		p.close()
		return nil, trouble(err)
	}
	return p, nil
}

// acquire waits ten seconds for another run.
func (p *place) acquire(ctx context.Context) error {
	for range 200 {
		err := unix.Flock(int(p.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return model.Faultf(model.CodeIO, "", "lock of directory %s: %w", p.dir, err)
		}
		select {
		case <-ctx.Done():
			return interrupted(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
	return model.Faultf(model.CodeTryAgain, "wait for it", "directory %s: another weft install is at work there", p.dir)
}

// close unlocks the directory; nobody's is no harm.
func (p *place) close() {
	if p != nil {
		_ = p.lock.Close()
	}
}

func (p *place) path(name string) string { return filepath.Join(p.dir, name) }

func (p *place) draft(name string) string { return p.path(draft + name + unread) }

// clear removes drafts. Nobody else is writing one: the directory is locked.
func (p *place) clear() error {
	entries, err := p.lock.ReadDir(-1)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), draft) && strings.HasSuffix(e.Name(), unread) {
			if err := os.Remove(p.path(e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// put makes NAME a file with that content.
func (p *place) put(name string, content io.Reader, mode fs.FileMode) error {
	tmp := p.draft(name)
	if err := write(tmp, content, mode); err != nil {
		_ = os.Remove(tmp)
		return trouble(err)
	}
	return p.settle(name)
}

func write(path string, content io.Reader, mode fs.FileMode) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := io.Copy(f, content); err != nil {
		return err
	}
	if err := f.Chmod(mode); err != nil { // whatever the umask
		return err
	}
	return f.Sync() // a program that lost its content in a power failure would stop every pod of the node
}

// point makes NAME a symbolic link.
func (p *place) point(name, target string) error {
	if err := os.Symlink(target, p.draft(name)); err != nil {
		return trouble(err)
	}
	return p.settle(name)
}

// settle gives the draft of NAME its name.
func (p *place) settle(name string) error {
	if err := os.Rename(p.draft(name), p.path(name)); err != nil {
		_ = os.Remove(p.draft(name))
		return trouble(err)
	}
	if err := p.lock.Sync(); err != nil && !errors.Is(err, unix.EINVAL) {
		return trouble(fmt.Errorf("directory %s: %w", p.dir, err))
	}
	return nil
}

// double gives the file NAME a second name, replacing what has that name.
func (p *place) double(name, second string) error {
	err := os.Link(p.path(name), p.draft(second))
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EMLINK) {
		return p.duplicate(name, second) // a file system without hard links
	}
	if err != nil {
		return trouble(err)
	}
	if err := p.settle(second); err != nil {
		return err
	}
	// rename(2) does nothing when both names are the same file already.
	if err := os.Remove(p.draft(second)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return trouble(err)
	}
	return nil
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

// trouble says what to do about an error of the file system.
func trouble(err error) error {
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
