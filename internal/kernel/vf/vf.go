// SPDX-License-Identifier: Apache-2.0

// Package vf disables virtual functions of network cards, by their physical functions: a program that drives one in
// user space (a VM) sends and receives packets that bypass the kernel's rules.
package vf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
)

// ErrNoPhysicalFunction is wrapped by the error about a device that has no physical function on this node, or none with a kernel
// driver.
var ErrNoPhysicalFunction = errors.New("no physical function on the node can disable it")

// Devices is where sysfs lists PCI devices.
const Devices = "/sys/bus/pci/devices"

// Function is a virtual function: the link of its card, and its number.
type Function struct {
	Card   string
	Number int
}

// Find finds the function with a PCI address in a directory like Devices.
func Find(devices, pci string) (Function, error) {
	var f Function
	card := filepath.Join(devices, pci, "physfn")
	links, err := os.ReadDir(filepath.Join(card, "net"))
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(links) == 0 {
		return f, fmt.Errorf("device %s: %w", pci, ErrNoPhysicalFunction)
	}
	if err != nil {
		return f, fmt.Errorf("device %s: %w", pci, err)
	}
	f.Card = links[0].Name()
	all, err := filepath.Glob(filepath.Join(card, "virtfn*"))
	if err != nil {
		return f, err
	}
	for _, one := range all {
		target, err := os.Readlink(one)
		if err != nil || filepath.Base(target) != pci {
			continue
		}
		if f.Number, err = strconv.Atoi(strings.TrimPrefix(filepath.Base(one), "virtfn")); err == nil {
			return f, nil
		}
	}
	return f, fmt.Errorf("device %s is none of the functions of %s: %w", pci, f.Card, ErrNoPhysicalFunction)
}

// Disable disables a function's link, or lets it follow the card's link again. It reports whether that was a change.
func (f Function) Disable(cut bool) (changed bool, err error) {
	card, err := netlink.LinkByName(f.Card)
	if err != nil {
		return false, fmt.Errorf("link %s: %w", f.Card, err)
	}
	i := slices.IndexFunc(card.Attrs().Vfs, func(v netlink.VfInfo) bool { return v.ID == f.Number })
	if i < 0 {
		return false, fmt.Errorf("link %s has no function %d: %w", f.Card, f.Number, ErrNoPhysicalFunction)
	}
	want := uint32(netlink.VF_LINK_STATE_AUTO)
	if cut {
		want = netlink.VF_LINK_STATE_DISABLE
	}
	if is := card.Attrs().Vfs[i].LinkState; is == want || !cut && is != netlink.VF_LINK_STATE_DISABLE {
		return false, nil
	}
	if err := netlink.LinkSetVfState(card, f.Number, want); err != nil {
		return false, fmt.Errorf("link %s, function %d: %w", f.Card, f.Number, err)
	}
	return true, nil
}
