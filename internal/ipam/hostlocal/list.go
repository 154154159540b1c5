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

// Directory returns the directory of a network.
func (a *Allocator) Directory(req ipam.Request) (string, error) { return a.directoryOf(req) }

// List returns the directory of a network and its entries, without addresses kept for virtual machines. It takes no
// lock: concurrent changes may be missing.
func (a *Allocator) List(req ipam.Request) (dir string, entries []Entry, err error) {
	if dir, err = a.directoryOf(req); err != nil {
		return "", nil, err
	}
	names, err := taken(dir)
	if err != nil {
		return dir, nil, ioError(dir, err)
	}
	for addr := range names {
		content, err := readSmall(filepath.Join(dir, addr.String()))
		if errors.Is(err, fs.ErrNotExist) || strings.HasPrefix(content, vmPrefix) {
			continue
		}
		if err != nil {
			return dir, nil, ioError(dir, err)
		}
		id, ifName, _ := strings.Cut(content, separator)
		entries = append(entries, Entry{addr, id, ifName})
	}
	slices.SortFunc(entries, func(a, b Entry) int { return a.Addr.Compare(b.Addr) })
	return dir, entries, nil
}
