// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/sysctl"
	"github.com/weft-net/weft/internal/state"
)

// Where sysfs lists hardware.
const (
	pciDevices       = "/sys/bus/pci/devices"
	auxiliaryDevices = "/sys/bus/auxiliary/devices"
)

// answerDevice finds a device and describes everything of its link that moving it to another namespace loses.
func (c *Namespace) answerDevice(ctx context.Context, d state.Device) (state.Answer, error) {
	var a state.Answer
	name := d.Name
	switch {
	case !d.MAC.IsZero():
		f, ok, err := c.linkByMAC(ctx, d.MAC)
		if err != nil || !ok {
			return a, err
		}
		name = f.Name
	case d.Name == "":
		dir, pci, err := c.hardware(d)
		if err != nil || dir == "" {
			return a, err
		}
		a.Found, a.PCI = true, pci
		if a.Driver, err = driver(dir); err != nil {
			return a, err
		}
		if name, err = netDevice(dir); err != nil {
			return a, err
		}
	}
	if name == "" {
		return a, nil
	}
	return c.describeDevice(ctx, a, name)
}

// linkByMAC finds the link of a MAC address. Several can have the same one (a VLAN has its parent's): hardware is
// preferred to links on top of it, then the older one.
func (c *Namespace) linkByMAC(ctx context.Context, mac state.MAC) (found link.Found, ok bool, err error) {
	links, err := c.Reader.Links(ctx, 0)
	for _, index := range slices.Sorted(maps.Keys(links)) {
		f := links[index]
		if f.MAC != mac || f.Dead() || ok && (f.Kind != "" || found.Kind == "") {
			continue
		}
		found, ok = f, true
	}
	return found, ok, err
}

// hardware returns the directory of a device, "" when there is none, and its address on the PCI bus.
func (c *Namespace) hardware(d state.Device) (dir, pci string, err error) {
	type place struct{ dir, pci string }
	var places []place
	switch {
	case d.Path != "":
		places = []place{{dir: d.Path}}
	case d.PCI != "":
		places = []place{{filepath.Join(pciDevices, d.PCI), d.PCI}}
	case d.ID != "":
		places = []place{{filepath.Join(pciDevices, d.ID), d.ID}, {dir: filepath.Join(auxiliaryDevices, d.ID)}}
	}
	for _, p := range places {
		dir := c.file(p.dir)
		_, err := os.Stat(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return dir, p.pci, err
	}
	return "", "", nil
}

// driver returns the name of the driver that is bound to a device.
func driver(dir string) (string, error) {
	target, err := os.Readlink(filepath.Join(dir, "driver"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return filepath.Base(target), err
}

// netDevice returns the first network device of a device: its own, or that of its virtio device. It is empty when there
// is none in the namespace for which sysfs was mounted.
func netDevice(dir string) (string, error) {
	below, err := filepath.Glob(filepath.Join(dir, "virtio*"))
	if err != nil {
		return "", err
	}
	for _, dir := range append([]string{dir}, below...) {
		entries, err := os.ReadDir(filepath.Join(dir, "net"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if len(entries) > 0 {
			return entries[0].Name(), nil
		}
	}
	return "", nil
}

// describeDevice adds a link, by its name or an alternative name, with its addresses, routes and settings.
func (c *Namespace) describeDevice(ctx context.Context, a state.Answer, name string) (state.Answer, error) {
	f, found, err := c.Reader.LinkByAnyName(ctx, name)
	if err != nil || !found || f.Dead() {
		return a, err
	}
	more, err := c.describe(ctx, f)
	if err != nil {
		return a, err
	}
	a.Found, a.Link = true, more.Link
	addrs, err := c.Reader.Addrs(ctx, f.Index)
	if err != nil {
		return a, err
	}
	for _, addr := range addrs {
		if !addr.Own && !addr.LinkLocal() {
			addr.Link = f.Name
			a.Addrs = append(a.Addrs, addr.Addr)
		}
	}
	routes, err := c.answerRoutes(ctx, f, false)
	if err != nil {
		return a, err
	}
	for _, r := range routes.Routes {
		if r.Protocol != unix.RTPROT_RA {
			a.Routes = append(a.Routes, r)
		}
	}
	a.Sysctls = ownSettings(f)
	return a, nil
}

// ownSettings returns a link's own settings, if its message contains them: they are reset in another namespace.
func ownSettings(f link.Found) []state.Sysctl {
	var out []state.Sysctl
	for _, family := range []string{"ipv4", "ipv6"} {
		for _, setting := range sysctl.Settings(family == "ipv6") {
			s := state.Sysctl{Name: strings.Join([]string{"net", family, "conf", f.Name, setting}, "/"), IfPresent: true}
			c, ok := sysctl.Of(s.Name)
			if !ok {
				continue
			}
			if s.Value, ok = c.InLinkMessage(f.Conf4, f.Conf6, f.AddrGenMode); ok {
				out = append(out, s)
			}
		}
	}
	return out
}
