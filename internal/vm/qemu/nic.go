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

// DeviceID is QEMU's ID of a network device (the frontend), for set_link and device_del.
func DeviceID(d model.VMDevice) string {
	if d.HostPCI != "" {
		return "ua-sriov-" + d.Name
	}
	return "ua-" + d.Name
}

// netdevID is QEMU's ID of a network device's backend.
func netdevID(d model.VMDevice) string { return "host-" + d.Name }

// property is a property of a device: its value is a string, a number or a bool.
type property struct {
	key   string
	value any
}

// device returns the arguments for a network device.
func (c Config) device(d model.VMDevice, fds *files) ([]string, error) {
	taps := c.Taps[d.Name]
	kind, props, err := nicDevice(d, len(taps))
	if err != nil {
		return nil, fmt.Errorf("VM %s: interface %s: %w", c.Name, d.Name, err)
	}
	if _, slot, ok := strings.Cut(strings.TrimPrefix(d.PCIAddress, "0000:"), ":"); ok {
		props = append(props, property{"addr", "0x" + slot})
	}
	if at := slices.Index(c.hotplugNICs(), d.Name); at >= 0 {
		props = append(props, property{"bus", port(at)})
	}
	for _, p := range props {
		kind += "," + p.key + "=" + p.text()
	}
	if d.HostPCI != "" {
		return []string{"-device", kind}, nil
	}
	netdev := "tap,id=" + escape(netdevID(d)) + fdList(fds, "fd", taps)
	if vhost := c.VhostNet[d.Name]; len(vhost) > 0 {
		netdev += ",vhost=on" + fdList(fds, "vhostfd", vhost)
	} else {
		netdev += ",vhost=off"
	}
	return []string{"-netdev", netdev, "-device", kind}, nil
}

// text formats a property's value for the command line.
func (p property) text() string {
	if on, ok := p.value.(bool); ok {
		return map[bool]string{true: "on", false: "off"}[on]
	}
	return escape(fmt.Sprint(p.value))
}

// nicDevice returns a network device's driver and properties, without its place on the bus.
func nicDevice(d model.VMDevice, queues int) (kind string, out []property, err error) {
	if d.HostPCI != "" {
		return "vfio-pci", append([]property{{"host", d.HostPCI}, {"id", DeviceID(d)}}, bootProperties(d)...), nil
	}
	if queues == 0 {
		return "", nil, fmt.Errorf("no tap is open")
	}
	if kind, err = driver(d.Model); err != nil {
		return "", nil, err
	}
	out = []property{{"netdev", netdevID(d)}, {"id", DeviceID(d)}, {"mac", d.MAC}}
	if strings.HasPrefix(kind, "virtio") {
		if d.MTU > 0 {
			out = append(out, property{"host_mtu", d.MTU})
		}
		if queues > 1 {
			out = append(out, property{"mq", true}, property{"vectors", 2*queues + 2})
		}
	}
	if d.BootOrder == 0 { // the option ROM is never used
		out = append(out, property{"romfile", ""})
	}
	return kind, append(out, bootProperties(d)...), nil
}

// bootProperties are the properties by which the firmware and the guest identify a network device.
func bootProperties(d model.VMDevice) (out []property) {
	if d.BootOrder > 0 {
		out = append(out, property{"bootindex", d.BootOrder})
	}
	if d.ACPIIndex > 0 {
		out = append(out, property{"acpi-index", d.ACPIIndex})
	}
	return out
}

// fdList returns a key with one descriptor, or the key's plural with several.
func fdList(fds *files, key string, of []*os.File) string {
	var numbers []string
	for _, f := range of {
		numbers = append(numbers, fds.add(f))
	}
	return "," + plural(key, of) + "=" + strings.Join(numbers, ":")
}

// plural returns the key, or its plural for several files.
func plural(key string, of []*os.File) string {
	if len(of) > 1 {
		return key + "s"
	}
	return key
}

// sparePorts is the number of network devices that can be hot-plugged.
const sparePorts = 4

// hotplugNICs returns the network devices with a PCI Express port of their own, in the ports' order: only these can be
// unplugged. The first device has none, and none with an address in the manifest.
func (c Config) hotplugNICs() (out []string) {
	for i, d := range c.Devices {
		if i > 0 && d.PCIAddress == "" && d.HostPCI == "" {
			out = append(out, d.Name)
		}
	}
	return out
}

// port is the ID of a port.
func port(i int) string { return "port" + strconv.Itoa(i) }

// ports returns the arguments for the ports, with spare ones. They are in slots without a device's address, eight per
// slot.
func (c Config) ports() (out []string) {
	const first, functions = 0x1c, 8
	slot := first + 1
	for i := range len(c.hotplugNICs()) + sparePorts {
		if i%functions == 0 {
			for slot--; c.slotTaken(slot); slot-- {
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

// slotTaken reports whether a network device has an address in a slot.
func (c Config) slotTaken(slot int) bool {
	return slices.ContainsFunc(c.Devices, func(d model.VMDevice) bool {
		return strings.HasPrefix(strings.TrimPrefix(d.PCIAddress, "0000:"), fmt.Sprintf("00:%02x.", slot))
	})
}

// driver returns QEMU's driver for a model.
func driver(name string) (string, error) {
	switch name {
	case "virtio-non-transitional", "virtio-transitional":
		return "virtio-net-pci-" + strings.TrimPrefix(name, "virtio-"), nil
	case "virtio":
		return "virtio-net-pci", nil
	case "e1000", "e1000e", "igb", "rtl8139", "pcnet", "ne2k_pci":
		return name, nil
	}
	return "", model.Errorf(model.CodeUnsupportedField, "virtio, e1000, e1000e, igb, rtl8139, pcnet or ne2k_pci",
		"model %q is not known", name)
}
