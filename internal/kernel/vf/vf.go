// SPDX-License-Identifier: Apache-2.0

// Package vf cuts virtual functions of network cards off, by their physical functions: what drives one by itself (a
// virtual machine) sends and gets packets that no rule of the kernel sees.
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

// ErrAlone is wrapped by the error about a device that has no physical function on this node, or none that the kernel
// drives.
var ErrAlone = errors.New("nothing on the node can cut it off")

// Devices is where the kernel lists what is on its PCI buses.
const Devices = "/sys/bus/pci/devices"

// Function is a virtual function: the link of its card, and which of the card's it is.
type Function struct {
	Card   string
	Number int
}

// Find finds the function of a PCI address in a directory that is as Devices.
func Find(devices, pci string) (Function, error) {
	var f Function
	card := filepath.Join(devices, pci, "physfn")
	links, err := os.ReadDir(filepath.Join(card, "net"))
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(links) == 0 {
		return f, fmt.Errorf("device %s: %w", pci, ErrAlone)
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
	return f, fmt.Errorf("device %s is none of the functions of %s: %w", pci, f.Card, ErrAlone)
}

// Cut has a function have no link, or again the link that its card has. It tells whether that was something new.
func (f Function) Cut(cut bool) (changed bool, err error) {
	card, err := netlink.LinkByName(f.Card)
	if err != nil {
		return false, fmt.Errorf("link %s: %w", f.Card, err)
	}
	i := slices.IndexFunc(card.Attrs().Vfs, func(v netlink.VfInfo) bool { return v.ID == f.Number })
	if i < 0 {
		return false, fmt.Errorf("link %s has no function %d: %w", f.Card, f.Number, ErrAlone)
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
