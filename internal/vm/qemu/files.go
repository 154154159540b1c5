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

// files are the descriptors for QEMU, numbered as QEMU sees them, and those that this process must close. QEMU gets
// descriptors so that its user needs no permissions for the paths.
type files struct{ passed, owned []*os.File }

func (f *files) add(file *os.File) string {
	f.passed = append(f.passed, file)
	return strconv.Itoa(len(f.passed) + 2)
}

// open opens an image file.
func (f *files) open(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", model.Errorf(model.CodeIO, "", "image of the VM: %w", err)
	}
	f.owned = append(f.owned, file)
	return "/proc/self/fd/" + f.add(file), nil
}

// log opens a log file.
func (f *files) log(path string) (string, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return "", model.Errorf(model.CodeIO, "", "log of the VM: %w", err)
	}
	f.owned = append(f.owned, file)
	return f.add(file), nil
}

// listen creates a socket, and removes that of a killed VM.
func (f *files) listen(dir, name string) (string, error) {
	if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("socket of the VM: %w", err)
	}
	path, done, err := shortPath(dir, name)
	if err != nil {
		return "", err
	}
	defer done()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return "", fmt.Errorf("socket of the VM: %w", err)
	}
	defer func() { _ = l.Close() }()
	l.SetUnlinkOnClose(false)
	file, err := l.File()
	if err == nil {
		err = os.Chmod(filepath.Join(dir, name), 0o600)
		f.owned = append(f.owned, file)
	}
	if err != nil {
		return "", fmt.Errorf("socket of the VM: %w", err)
	}
	return f.add(file), nil
}

func (f *files) close() {
	for _, file := range f.owned {
		_ = file.Close()
	}
}

// shortPath returns a short path to a file: a socket's path has at most 107 bytes.
func shortPath(dir, name string) (path string, done func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return "", nil, fmt.Errorf("directory of the VM: %w", err)
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name), func() { _ = d.Close() }, nil
}

// dial connects to a socket of a VM.
func dial(ctx context.Context, dir, name string) (net.Conn, error) {
	path, done, err := shortPath(dir, name)
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

// DialConsole connects to the serial console of the VM in a directory, as a terminal does. QEMU serves one connection
// at a time.
func DialConsole(ctx context.Context, dir string) (net.Conn, error) {
	return dial(ctx, dir, ConsoleName)
}

// ConsoleLog is the file with all output of the console.
func ConsoleLog(dir string) string { return filepath.Join(dir, consoleLog) }
