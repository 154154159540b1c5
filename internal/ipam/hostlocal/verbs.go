// SPDX-License-Identifier: Apache-2.0

package hostlocal

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

// Check reports whether the attachment still has the addresses of prev that are in the ranges; if prev has none of
// these, any address of prev; if prev has no address, any at all.
func (a *Allocator) Check(ctx context.Context, req ipam.Request, prev model.Result) error {
	set, err := a.settings(req)
	if err != nil {
		return err
	}
	gone := func(what string) error {
		return model.Errorf(
			model.CodeDiffers, "the address may be allocated again: DEL the attachment and ADD it again",
			"host-local: %s is not reserved for container %s interface %s in %s", what, req.ContainerID, req.IfName, set.dir)
	}
	d, err := a.open(ctx, set.dir, false)
	if err != nil {
		return err
	}
	if d == nil {
		return gone("any address")
	}
	defer d.close()
	expected := 0
	for _, ip := range prev.IPs {
		addr := ip.Address.Addr()
		if !set.contains(addr) {
			continue
		}
		expected++
		if !d.isHeldBy(addr, req.ContainerID, req.IfName) {
			return gone(addr.String())
		}
	}
	if expected > 0 {
		return nil
	}
	held, err := d.heldBy(req.ContainerID, req.IfName)
	if err != nil {
		return err
	}
	if len(held) == 0 {
		return gone("any address")
	}
	if len(prev.IPs) == 0 {
		return nil
	}
	for _, ip := range prev.IPs {
		if slices.Contains(held, ip.Address.Addr()) {
			return nil // from a range that the configuration does not have any more
		}
	}
	return gone("any address of prevResult")
}

// Status reports whether the configuration is valid and its directory can be used. A range set without a free address
// is no error, as with the reference plugin: a runtime would mark the whole node as not ready, and Kubernetes would
// evict the pods that have the addresses.
func (a *Allocator) Status(_ context.Context, req ipam.Request) error {
	set, err := a.settings(req)
	if err != nil {
		return err
	}
	if err := writable(set.dir); err != nil {
		return model.Errorf(model.CodeNotAvailable, "make it writable, or choose another dataDir",
			"host-local: directory %s: %w", set.dir, err)
	}
	return nil
}

// writable reports whether files can be created in a directory, or the directory itself; it creates nothing.
func writable(dir string) error {
	err := unix.Access(dir, unix.W_OK|unix.X_OK)
	if errors.Is(err, unix.ENOENT) && dir != filepath.Dir(dir) {
		return writable(filepath.Dir(dir))
	}
	return err
}

// GC releases what belongs to no valid attachment, and removes files that a killed reference plugin left empty. It
// continues after an error.
func (a *Allocator) GC(ctx context.Context, req ipam.Request, valid []model.AttachmentKey) error {
	dir, err := a.directoryOf(req)
	if err != nil {
		return err
	}
	d, err := a.open(ctx, dir, false)
	if err != nil || d == nil {
		return err
	}
	defer d.close()
	keep := map[string]bool{}
	for _, k := range valid {
		keep[owner(k.ContainerID, k.IfName)] = true
		keep[k.ContainerID] = true // files of old versions name no interface
	}
	var errs []error
	err = d.each(func(addr netip.Addr, content string) {
		if !keep[content] && !strings.HasPrefix(content, vmPrefix) {
			errs = append(errs, d.remove(addr))
		}
	})
	d.removeUnfinished()
	return errors.Join(append(errs, err)...)
}
