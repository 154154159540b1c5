// SPDX-License-Identifier: Apache-2.0

package hostlocal

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

// Addresses of a virtual machine stay with it on its node: when its pod is deleted, the VM replaces the container in
// the address file, and the VM's next pod takes the address over. Such an address is allocated to another pod only when
// no other is free, the longest unused first: a node is not notified when a VM is deleted.

// vmPrefix precedes the name of a VM in the place of a container ID, which has no colon.
const vmPrefix = "vm:"

// vmOwner returns the content of the file of an address that is kept for a VM.
func vmOwner(vm model.VMRef, ifName string) string {
	return owner(vmPrefix+vm.String(), ifName)
}

// Capabilities returns the optional features: reservations, and why addresses may not stay with VMs.
func (a *Allocator) Capabilities() ipam.Capabilities { return ipam.Capabilities{Reserve: a, Sticky: a} }

// NotSticky returns why the addresses of VMs do not always stay.
func (*Allocator) NotSticky(ipam.Request) (why string) {
	return "its addresses belong to one node, and the VM may run on another"
}

// keptFor returns the addresses that are kept for the request's VM.
func (d *directory) keptFor(req ipam.Request) ([]netip.Addr, error) {
	if req.VM == nil || req.Incoming {
		return nil, nil // a migrating VM's addresses are its source node's
	}
	var out []netip.Addr
	want := vmOwner(*req.VM, req.IfName)
	err := d.each(func(a netip.Addr, content string) {
		if content == want {
			out = append(out, a)
		}
	})
	slices.SortFunc(out, netip.Addr.Compare)
	return out, err
}

// keepFor keeps a released address for a VM.
func (d *directory) keepFor(a netip.Addr, vm model.VMRef, ifName string) error {
	if err := d.remove(a); err != nil {
		return err
	}
	return d.reserve(a, vmOwner(vm, ifName))
}

// oldestKept returns the address of a set that has been kept for a VM the longest; invalid: there is none.
func (d *directory) oldestKept(rs rangeSet) (netip.Addr, error) {
	var found netip.Addr
	var since time.Time
	var errs []error
	err := d.each(func(a netip.Addr, content string) {
		if !strings.HasPrefix(content, vmPrefix) || !rs.contains(a) {
			return
		}
		var st unix.Stat_t
		if err := unix.Stat(d.file(a), &st); err != nil {
			errs = append(errs, ioError(d.file(a), err))
			return
		}
		if at := time.Unix(st.Mtim.Unix()); !found.IsValid() || at.Before(since) {
			found, since = a, at
		}
	})
	return found, errors.Join(append(errs, err)...)
}
