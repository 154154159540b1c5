// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/weft-net/weft/internal/model"
)

// files are the descriptors that QEMU gets, numbered as it sees them, and those of them that are this process's to
// close. So the user that it runs as needs no right to walk anywhere.
type files struct{ all, own []*os.File }

func (f *files) add(file *os.File) string {
	f.all = append(f.all, file)
	return strconv.Itoa(len(f.all) + 2)
}

// open opens a file of an image.
func (f *files) open(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", model.Faultf(model.CodeIO, "", "image of the machine: %w", err)
	}
	f.own = append(f.own, file)
	return "/proc/self/fd/" + f.add(file), nil
}

// log opens a file that is written.
func (f *files) log(path string) (string, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return "", model.Faultf(model.CodeIO, "", "log of the machine: %w", err)
	}
	f.own = append(f.own, file)
	return f.add(file), nil
}

// listen makes a socket, and takes away that of a machine that was killed.
func (f *files) listen(dir, name string) (string, error) {
	if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("socket of the machine: %w", err)
	}
	path, done, err := reachable(dir, name)
	if err != nil {
		return "", err
	}
	defer done()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return "", fmt.Errorf("socket of the machine: %w", err)
	}
	defer func() { _ = l.Close() }()
	l.SetUnlinkOnClose(false)
	file, err := l.File()
	if err == nil {
		err = os.Chmod(filepath.Join(dir, name), 0o600)
		f.own = append(f.own, file)
	}
	if err != nil {
		return "", fmt.Errorf("socket of the machine: %w", err)
	}
	return f.add(file), nil
}

func (f *files) close() {
	for _, file := range f.own {
		_ = file.Close()
	}
}

// reachable is a short way to a file: a socket's path has at most 107 bytes.
func reachable(dir, name string) (path string, done func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return "", nil, fmt.Errorf("directory of the machine: %w", err)
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name), func() { _ = d.Close() }, nil
}

// dial connects to a socket of a machine.
func dial(ctx context.Context, dir, name string) (net.Conn, error) {
	path, done, err := reachable(dir, name)
	if err != nil {
		return nil, err
	}
	defer done()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
	}
	return conn, nil
}

// DialConsole connects to the serial console of the machine in a directory, as a terminal does. One connection is
// served at a time.
func DialConsole(ctx context.Context, dir string) (net.Conn, error) {
	return dial(ctx, dir, ConsoleName)
}

// ConsoleLog is the file with all that the console has said.
func ConsoleLog(dir string) string { return filepath.Join(dir, consoleLog) }
