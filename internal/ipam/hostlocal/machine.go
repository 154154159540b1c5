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

// Addresses of a virtual machine stay with it on its node: when its pod has gone, the file of the address says the
// machine in the place of the container, and the machine's next pod takes it over. Such an address is given to somebody
// else when no other is left, the one that was left longest ago first: nobody tells a node that a machine is gone.

// machinePrefix is before the name of a machine where a container's would be. No container id has a colon.
const machinePrefix = "vm:"

// machineOwner is what the file of an address says that is kept for a machine.
func machineOwner(vm model.VMRef, ifName string) string {
	return owner(machinePrefix+vm.String(), ifName)
}

// Capabilities says what it can beside giving: choose before it gives, and say why it keeps nothing.
func (a *Allocator) Capabilities() ipam.Capabilities { return ipam.Capabilities{Hold: a, Keep: a} }

// Keeps says why the addresses of machines do not always stay.
func (*Allocator) Keeps(ipam.Ask) (why string) {
	return "its addresses are one node's, and the machine may run on another"
}

// promised are the addresses that are kept for the asked machine.
func (d *directory) promised(ask ipam.Ask) ([]netip.Addr, error) {
	if ask.VM == nil || ask.Incoming {
		return nil, nil // where the machine comes from, its addresses are that node's
	}
	var out []netip.Addr
	want := machineOwner(*ask.VM, ask.IfName)
	err := d.each(func(a netip.Addr, content string) {
		if content == want {
			out = append(out, a)
		}
	})
	slices.SortFunc(out, netip.Addr.Compare)
	return out, err
}

// promise keeps an address for a machine that its attachment has no more.
func (d *directory) promise(a netip.Addr, vm model.VMRef, ifName string) error {
	if err := d.remove(a); err != nil {
		return err
	}
	return d.reserve(a, machineOwner(vm, ifName))
}

// oldest is the address of a set that was kept for some machine longest ago; invalid: none is.
func (d *directory) oldest(rs rangeSet) (netip.Addr, error) {
	var found netip.Addr
	var since time.Time
	var errs []error
	err := d.each(func(a netip.Addr, content string) {
		if !strings.HasPrefix(content, machinePrefix) || !rs.contains(a) {
			return
		}
		var st unix.Stat_t
		if err := unix.Stat(d.file(a), &st); err != nil {
			errs = append(errs, broken(d.file(a), err))
			return
		}
		if at := time.Unix(st.Mtim.Unix()); !found.IsValid() || at.Before(since) {
			found, since = a, at
		}
	})
	return found, errors.Join(append(errs, err)...)
}
