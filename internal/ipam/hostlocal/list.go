// SPDX-License-Identifier: Apache-2.0

package hostlocal

import (
	"errors"
	"io/fs"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/ipam"
)

// Entry is an address that a network's directory holds for an attachment.
type Entry struct {
	Addr                netip.Addr
	ContainerID, IfName string
}

// Directory returns where the addresses of a network are.
func (a *Allocator) Directory(ask ipam.Ask) (string, error) { return a.directoryOf(ask) }

// List returns the directory of a network and what it holds, promises to virtual machines left out. It waits for no
// lock: what comes or goes meanwhile is in it, or not.
func (a *Allocator) List(ask ipam.Ask) (dir string, entries []Entry, err error) {
	if dir, err = a.directoryOf(ask); err != nil {
		return "", nil, err
	}
	names, err := taken(dir)
	if err != nil {
		return dir, nil, broken(dir, err)
	}
	for addr := range names {
		content, err := readSmall(filepath.Join(dir, addr.String()))
		if errors.Is(err, fs.ErrNotExist) || strings.HasPrefix(content, machinePrefix) {
			continue
		}
		if err != nil {
			return dir, nil, broken(dir, err)
		}
		id, ifName, _ := strings.Cut(content, separator)
		entries = append(entries, Entry{addr, id, ifName})
	}
	slices.SortFunc(entries, func(a, b Entry) int { return a.Addr.Compare(b.Addr) })
	return dir, entries, nil
}
