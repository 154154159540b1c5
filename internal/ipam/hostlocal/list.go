// SPDX-License-Identifier: Apache-2.0

package hostlocal

import (
	"context"
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

// Free removes an entry from a network's directory, for an attachment that does not exist. An address that has been
// allocated again is kept, also to another interface of the same container.
func (a *Allocator) Free(ctx context.Context, dir string, e Entry) error {
	d, err := a.open(ctx, dir, false)
	if err != nil || d == nil {
		return err
	}
	defer d.close()
	content, err := readSmall(d.file(e.Addr))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return ioError(d.file(e.Addr), err)
	}
	if id, ifName, _ := strings.Cut(content, separator); id != e.ContainerID || ifName != e.IfName {
		return nil
	}
	return d.remove(e.Addr)
}
