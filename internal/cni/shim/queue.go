// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"syscall"

	"github.com/weft-net/weft/internal/cni/wire"
)

// enqueue writes the DEL to the queue, atomically and synced to the disk. On an error it returns the path.
func (c *call) enqueue() (path string, err error) {
	wire.Header{Env: len(c.frame) - len(c.conf) - wire.RequestHeader, Conf: len(c.conf)}.Put(c.frame)
	dir := wire.QueueDir(c.socket)
	name := wire.QueueName(c.env.UnixNano(), c.env.Pid)
	temp := dir + "/" + wire.TempPrefix + name
	if err := c.write(dir, temp); err != nil {
		return temp, err
	}
	if err := syscall.Rename(temp, dir+"/"+name); err != nil {
		_ = syscall.Unlink(temp)
		return dir + "/" + name, err
	}
	return dir, syncDir(dir)
}

// write creates the file temp, and its directory if missing.
func (c *call) write(dir, temp string) error {
	const flags = syscall.O_WRONLY | syscall.O_CREAT | syscall.O_EXCL | syscall.O_CLOEXEC
	fd, err := syscall.Open(temp, flags, 0o600)
	if err == syscall.ENOENT {
		if err = mkdir(dir, 0o700); err == nil {
			fd, err = syscall.Open(temp, flags, 0o600)
		}
	}
	if err != nil {
		return err
	}
	err = writeAll(fd, c.frame)
	if err == nil {
		err = syscall.Fsync(fd)
	}
	if shut := syscall.Close(fd); err == nil {
		err = shut
	}
	if err != nil {
		_ = syscall.Unlink(temp)
	}
	return err
}

func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := syscall.Write(fd, b)
		if err != nil && err != syscall.EINTR {
			return err
		}
		b = b[max(n, 0):]
	}
	return nil
}

// mkdir creates dir and missing parents.
func mkdir(dir string, mode uint32) error {
	err := syscall.Mkdir(dir, mode)
	if err == syscall.ENOENT && dir != wire.Dir(dir) {
		if err = mkdir(wire.Dir(dir), 0o755); err == nil {
			err = syscall.Mkdir(dir, mode)
		}
	}
	if err == syscall.EEXIST {
		return nil
	}
	return err
}

func syncDir(dir string) error {
	fd, err := syscall.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	err = syscall.Fsync(fd)
	_ = syscall.Close(fd)
	return err
}
