// SPDX-License-Identifier: Apache-2.0

package hostlocal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/flock"
	"github.com/weft-net/weft/internal/model"
)

const (
	separator  = "\r\n"
	unfinished = ".new" // a file without an owner yet, where the file system cannot make one without a name
)

// owner returns the content of an address file.
func owner(containerID, ifName string) string {
	return strings.TrimSpace(strings.TrimSpace(containerID) + separator + ifName)
}

// directory is a network's locked directory.
type directory struct {
	path string
	lock int
	done chan struct{} // this process's lock, to release
}

// open locks the network's directory. Without create, a missing directory is nil: nothing is reserved there.
func (a *Allocator) open(ctx context.Context, path string, create bool) (*directory, error) {
	turn, err := a.lock(ctx, path)
	if err != nil {
		return nil, err
	}
	fd, err := openLock(path, create)
	if err != nil {
		<-turn
		if errors.Is(err, fs.ErrNotExist) && !create {
			return nil, nil
		}
		return nil, ioError(path, err)
	}
	if err := flock.Wait(ctx, uintptr(fd), flock.Exclusive); err != nil {
		_ = unix.Close(fd)
		<-turn
		return nil, model.Errorf(model.CodeTryAgain, "", "host-local: lock of %s: %w", path, err)
	}
	return &directory{path: path, lock: fd, done: turn}, nil
}

// lock takes this process's lock of a directory.
func (a *Allocator) lock(ctx context.Context, path string) (chan struct{}, error) {
	a.mu.Lock()
	turn := a.locks[path]
	if turn == nil {
		turn = make(chan struct{}, 1)
		a.locks[path] = turn
	}
	a.mu.Unlock()
	select {
	case turn <- struct{}{}:
		return turn, nil
	case <-ctx.Done():
		return nil, model.Errorf(model.CodeTryAgain, "", "host-local: waiting for %s: %w", path, ctx.Err())
	}
}

func openLock(path string, create bool) (int, error) {
	name := filepath.Join(path, "lock")
	const flags = unix.O_RDONLY | unix.O_CREAT
	fd, err := open(name, flags, 0o750)
	if !create || !errors.Is(err, fs.ErrNotExist) {
		return fd, err
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return -1, err
	}
	return open(name, flags, 0o750)
}

// close releases the locks: that of the file ends with its descriptor.
func (d *directory) close() {
	_ = unix.Close(d.lock)
	<-d.done
}

func (d *directory) file(a netip.Addr) string { return filepath.Join(d.path, a.String()) }

func (d *directory) remove(a netip.Addr) error {
	if err := unix.Unlink(d.file(a)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return ioError(d.file(a), err)
	}
	return nil
}

func (d *directory) removeUnfinished() { _ = unix.Unlink(filepath.Join(d.path, unfinished)) }

// isFree reports whether an address has no file.
func (d *directory) isFree(a netip.Addr) (bool, error) {
	err := unix.Access(d.file(a), unix.F_OK)
	if errors.Is(err, unix.ENOENT) {
		return true, nil
	}
	if err != nil {
		return false, ioError(d.file(a), err)
	}
	return false, nil
}

// isHeldBy reads the file of one address.
func (d *directory) isHeldBy(a netip.Addr, containerID, ifName string) bool {
	content, err := readSmall(d.file(a))
	return err == nil && (content == owner(containerID, ifName) || content == strings.TrimSpace(containerID))
}

// heldBy searches all files for those of an attachment; those of old versions, which name only the container, count
// when there is no other.
func (d *directory) heldBy(containerID, ifName string) ([]netip.Addr, error) {
	var exact, old []netip.Addr
	err := d.each(func(a netip.Addr, content string) {
		switch content {
		case owner(containerID, ifName):
			exact = append(exact, a)
		case strings.TrimSpace(containerID):
			old = append(old, a)
		}
	})
	if len(exact) > 0 {
		return exact, err
	}
	return old, err
}

// each reads the file of every address.
func (d *directory) each(visit func(netip.Addr, string)) error {
	names, err := taken(d.path)
	if err != nil {
		return ioError(d.path, err)
	}
	for a := range names {
		content, err := readSmall(d.file(a))
		if err != nil {
			return ioError(d.file(a), err)
		}
		visit(a, content)
	}
	return nil
}

// taken lists the addresses that have a file; there are none without a directory.
func taken(path string) (map[netip.Addr]bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	out := make(map[netip.Addr]bool, len(names))
	for _, name := range names {
		if a, err := netip.ParseAddr(name); err == nil {
			out[a] = true
		}
	}
	return out, nil
}

// ioError returns the error for a directory or file that cannot be used.
func ioError(path string, err error) error {
	hint := ""
	switch {
	case errors.Is(err, unix.ENOSPC):
		hint = "free space on that file system"
	case errors.Is(err, unix.EROFS), errors.Is(err, fs.ErrPermission):
		hint = "set ipam.dataDir to a directory that can be written"
	}
	return model.Errorf(model.CodeIO, hint, "host-local: %s: %w", path, err)
}
