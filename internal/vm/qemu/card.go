// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// escape doubles commas, which would end a value.
func escape(s string) string { return strings.ReplaceAll(s, ",", ",,") }

// ID is QEMU's name of a device's end in the machine, for set_link and device_del.
func ID(d model.VMDevice) string {
	if d.HostPCI != "" {
		return "ua-sriov-" + d.Name
	}
	return "ua-" + d.Name
}

// hostEnd is QEMU's name of a device's end on the host's side.
func hostEnd(d model.VMDevice) string { return "host-" + d.Name }

// property is one of a device's, as QEMU is told it: a word, a number or a switch.
type property struct {
	key   string
	value any
}

// device is a network card.
func (c Config) device(d model.VMDevice, fds *files) ([]string, error) {
	taps := c.Taps[d.Name]
	kind, card, err := cardOf(d, len(taps))
	if err != nil {
		return nil, fmt.Errorf("machine %s: interface %s: %w", c.Name, d.Name, err)
	}
	if _, slot, ok := strings.Cut(strings.TrimPrefix(d.PCIAddress, "0000:"), ":"); ok {
		card = append(card, property{"addr", "0x" + slot})
	}
	if at := slices.Index(c.seats(), d.Name); at >= 0 {
		card = append(card, property{"bus", port(at)})
	}
	for _, p := range card {
		kind += "," + p.key + "=" + p.text()
	}
	if d.HostPCI != "" {
		return []string{"-device", kind}, nil
	}
	netdev := "tap,id=" + escape(hostEnd(d)) + list(fds, "fd", taps)
	if vhost := c.VhostNet[d.Name]; len(vhost) > 0 {
		netdev += ",vhost=on" + list(fds, "vhostfd", vhost)
	} else {
		netdev += ",vhost=off"
	}
	return []string{"-netdev", netdev, "-device", kind}, nil
}

// text is a property's value on a command line.
func (p property) text() string {
	if on, ok := p.value.(bool); ok {
		return map[bool]string{true: "on", false: "off"}[on]
	}
	return escape(fmt.Sprint(p.value))
}

// cardOf is a card with so many queues, wherever on the bus it is: its driver and properties.
func cardOf(d model.VMDevice, queues int) (kind string, out []property, err error) {
	if d.HostPCI != "" {
		return "vfio-pci", append([]property{{"host", d.HostPCI}, {"id", ID(d)}}, found(d)...), nil
	}
	if queues == 0 {
		return "", nil, fmt.Errorf("no tap is open")
	}
	if kind, err = driver(d.Model); err != nil {
		return "", nil, err
	}
	out = []property{{"netdev", hostEnd(d)}, {"id", ID(d)}, {"mac", d.MAC}}
	if strings.HasPrefix(kind, "virtio") {
		if d.MTU > 0 {
			out = append(out, property{"host_mtu", d.MTU})
		}
		if queues > 1 {
			out = append(out, property{"mq", true}, property{"vectors", 2*queues + 2})
		}
	}
	if d.BootOrder == 0 { // nothing is ever read from it
		out = append(out, property{"romfile", ""})
	}
	return kind, append(out, found(d)...), nil
}

// found is how the firmware and the guest find a card.
func found(d model.VMDevice) (out []property) {
	if d.BootOrder > 0 {
		out = append(out, property{"bootindex", d.BootOrder})
	}
	if d.ACPIIndex > 0 {
		out = append(out, property{"acpi-index", d.ACPIIndex})
	}
	return out
}

// list is a key with one descriptor, or the key's plural with several.
func list(fds *files, key string, of []*os.File) string {
	var numbers []string
	for _, f := range of {
		numbers = append(numbers, fds.add(f))
	}
	return "," + many(key, of) + "=" + strings.Join(numbers, ":")
}

// many is the key, or its plural for several.
func many(key string, of []*os.File) string {
	if len(of) > 1 {
		return key + "s"
	}
	return key
}

// spare is how many cards can be plugged while a machine runs.
const spare = 4

// seats are the cards that have a port of their own, in the ports' order: on a bus of PCI Express nothing else can be
// taken away. The first card has none, and none that the manifest has an address for.
func (c Config) seats() (out []string) {
	for i, d := range c.Devices {
		if i > 0 && d.PCIAddress == "" && d.HostPCI == "" {
			out = append(out, d.Name)
		}
	}
	return out
}

// port is the name of a port.
func port(i int) string { return "port" + strconv.Itoa(i) }

// ports are those of the seats, and spare ones. They are in slots that no card has an address in, eight in each.
func (c Config) ports() (out []string) {
	const first, functions = 0x1c, 8
	slot := first + 1
	for i := range len(c.seats()) + spare {
		if i%functions == 0 {
			for slot--; c.asked(slot); slot-- {
			}
		}
		out = append(
			out, "-device",
			fmt.Sprintf("pcie-root-port,id=%s,chassis=%d,slot=%d,addr=0x%02x.%d,multifunction=on", port(i), i+1, i+1, slot,
				i%functions),
		)
	}
	return out
}

// asked tells whether a card has an address in a slot.
func (c Config) asked(slot int) bool {
	return slices.ContainsFunc(c.Devices, func(d model.VMDevice) bool {
		return strings.HasPrefix(strings.TrimPrefix(d.PCIAddress, "0000:"), fmt.Sprintf("00:%02x.", slot))
	})
}

// driver is QEMU's name of a model.
func driver(name string) (string, error) {
	switch name {
	case "virtio-non-transitional", "virtio-transitional":
		return "virtio-net-pci-" + strings.TrimPrefix(name, "virtio-"), nil
	case "virtio":
		return "virtio-net-pci", nil
	case "e1000", "e1000e", "igb", "rtl8139", "pcnet", "ne2k_pci":
		return name, nil
	}
	return "", model.Faultf(model.CodeUnsupportedField, "virtio, e1000, e1000e, igb, rtl8139, pcnet or ne2k_pci",
		"model %q is not known", name)
}
