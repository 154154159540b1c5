// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"
)

// LegacyTables returns the tables of iptables-legacy in the namespace, which the kernel keeps outside nft.
func (f *Filters) LegacyTables(v6 bool) ([]string, error) {
	path := "/proc/thread-self/net/ip_tables_names"
	if v6 {
		path = "/proc/thread-self/net/ip6_tables_names"
	}
	var text [4 << 10]byte // there are five names at most
	n := 0
	err := f.ns.Do(func() error {
		// Not by package os: every ADD reads this, and os would register the file with the runtime's poller.
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		defer func() { _ = unix.Close(fd) }()
		if n, err = unix.Read(fd, text[:]); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) { // root of a user namespace may not read it
		return nil, nil
	}
	return strings.Fields(string(text[:max(n, 0)])), err
}
