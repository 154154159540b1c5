// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

// LegacyTables returns the tables of iptables-legacy in the namespace, which the kernel keeps outside nft. Every ADD with a
// firewall asks, so the file stays open.
func (f *Filters) LegacyTables(v6 bool) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	names := &f.legacy[0]
	if v6 {
		names = &f.legacy[1]
	}
	if tables, err := names.read(); err == nil { // an error: it is not open, or the kernel's module was removed
		return tables, nil
	}
	if err := names.open(f.ns, v6); err != nil {
		// Root of a user namespace may not read it.
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			return nil, nil
		}
		return nil, err
	}
	return names.read()
}

// legacyNames is the kernel's file with the names of the tables of one family.
type legacyNames struct {
	fd int // 0: not open
}

// open opens the file in ns. Not by package os, which would register it with the runtime's poller.
func (l *legacyNames) open(ns *netns.NS, v6 bool) error {
	path := "/proc/thread-self/net/ip_tables_names"
	if v6 {
		path = "/proc/thread-self/net/ip6_tables_names"
	}
	return ns.Do(func() error {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		l.fd = fd
		return nil
	})
}

// read reads the file from its beginning; after an error it is closed.
func (l *legacyNames) read() ([]string, error) {
	if l.fd == 0 {
		return nil, os.ErrClosed
	}
	var text [4 << 10]byte // there are five names at most
	n, err := unix.Pread(l.fd, text[:], 0)
	if err != nil {
		l.close()
		return nil, fmt.Errorf("tables of iptables-legacy: %w", err)
	}
	return strings.Fields(string(text[:n])), nil
}

func (l *legacyNames) close() {
	if l.fd != 0 {
		_ = unix.Close(l.fd)
		l.fd = 0
	}
}
