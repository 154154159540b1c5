// SPDX-License-Identifier: Apache-2.0

package hostlocal

import (
	"errors"
	"io"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The files are small and an ADD counts its system calls, so they are opened without the runtime's poller.

func open(name string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Open(name, flags|unix.O_CLOEXEC, mode)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// readSmall reads a file of at most a few hundred bytes and trims it.
func readSmall(name string) (string, error) {
	fd, err := open(name, unix.O_RDONLY, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(fd) }()
	return readFd(fd)
}

func readFd(fd int) (string, error) {
	var buf [1024]byte // a container id and an interface name are at most 270 bytes
	n, err := unix.Pread(fd, buf[:], 0)
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(buf[:n])), nil
}

func writeAll(fd int, s string) error {
	n, err := unix.Pwrite(fd, []byte(s), 0)
	if err == nil && n < len(s) {
		err = io.ErrShortWrite
	}
	return err
}

// ownerFile is a file with its owner that has no name yet.
type ownerFile struct {
	d     *directory
	fd    int
	named string // the file's name where it could not be made without one
}

func (d *directory) newOwnerFile(owner string) (*ownerFile, error) {
	fd, err := open(d.path, unix.O_TMPFILE|unix.O_WRONLY, 0o600)
	for _, lacks := range []error{unix.EOPNOTSUPP, unix.EISDIR, unix.EINVAL, unix.ENOENT} {
		if errors.Is(err, lacks) {
			return d.newNamedOwnerFile(owner)
		}
	}
	return (&ownerFile{d: d, fd: fd}).begin(owner, err)
}

// newNamedOwnerFile is for file systems without O_TMPFILE. The directory's lock protects it.
func (d *directory) newNamedOwnerFile(owner string) (*ownerFile, error) {
	name := filepath.Join(d.path, unfinished)
	fd, err := open(name, unix.O_CREAT|unix.O_TRUNC|unix.O_WRONLY, 0o600)
	return (&ownerFile{d: d, fd: fd, named: name}).begin(owner, err)
}

func (r *ownerFile) begin(owner string, err error) (*ownerFile, error) {
	if err != nil {
		return nil, ioError(r.d.path, err)
	}
	if err := writeAll(r.fd, owner); err != nil {
		r.close()
		return nil, ioError(r.d.path, err)
	}
	return r, nil
}

// claim links the file under the name of an address; fs.ErrExist: the address is allocated.
func (r *ownerFile) claim(a netip.Addr) error {
	from, flags := "/proc/self/fd/"+strconv.Itoa(r.fd), unix.AT_SYMLINK_FOLLOW
	if r.named != "" {
		from, flags = r.named, 0
	}
	err := unix.Linkat(unix.AT_FDCWD, from, unix.AT_FDCWD, r.d.file(a), flags)
	if err == nil || errors.Is(err, unix.EEXIST) {
		return err
	}
	return ioError(r.d.file(a), err)
}

func (r *ownerFile) close() {
	_ = unix.Close(r.fd)
	if r.named != "" {
		_ = unix.Unlink(r.named)
	}
}

// lastFile is the position of the round robin.
type lastFile struct {
	name string
	fd   int
	size int
	addr netip.Addr // invalid when there was none
}

func (d *directory) last(i int) (*lastFile, error) {
	l := &lastFile{name: filepath.Join(d.path, "last_reserved_ip."+strconv.Itoa(i))}
	var err error
	if l.fd, err = open(l.name, unix.O_RDWR|unix.O_CREAT, 0o600); err != nil {
		return nil, ioError(l.name, err)
	}
	text, err := readFd(l.fd)
	if err != nil {
		l.close()
		return nil, ioError(l.name, err)
	}
	l.size = len(text)
	if a, err := netip.ParseAddr(text); err == nil {
		l.addr = a.Unmap()
	}
	return l, nil
}

// set writes the position. A process killed in between leaves a wrong one, which only affects the round robin.
func (l *lastFile) set(a netip.Addr) error {
	text := a.String()
	if len(text) < l.size {
		if err := unix.Ftruncate(l.fd, 0); err != nil {
			return ioError(l.name, err)
		}
	}
	if err := writeAll(l.fd, text); err != nil {
		return ioError(l.name, err)
	}
	return nil
}

func (l *lastFile) close() { _ = unix.Close(l.fd) }
