// SPDX-License-Identifier: Apache-2.0

// Package domain says in libvirt's words what a hypervisor gets of a machine's network: an element for each interface, as
// it stands below devices in a domain. It makes them of plan/vm's result alone.
package domain

import (
	"encoding/xml"
	"fmt"
	"strconv"
	"strings"

	"libvirt.org/go/libvirtxml"

	"github.com/weft-net/weft/internal/model"
)

// XML is the devices element of a domain, with nothing but the devices that are given.
func XML(devices []model.VMDevice) (string, error) {
	var list libvirtxml.DomainDeviceList
	for _, d := range devices {
		address, err := pci(d.PCIAddress)
		if err != nil {
			return "", fmt.Errorf("interface %s: %w", d.Name, err)
		}
		if d.HostPCI == "" {
			list.Interfaces = append(list.Interfaces, ethernet(d, address))
			continue
		}
		host, err := pci(d.HostPCI)
		if err != nil {
			return "", fmt.Errorf("interface %s: device: %w", d.Name, err)
		}
		list.Hostdevs = append(list.Hostdevs, hostdev(d, host, address))
	}
	var b strings.Builder
	enc := xml.NewEncoder(&b)
	enc.Indent("", "  ")
	if err := enc.EncodeElement(list, xml.StartElement{Name: xml.Name{Local: "devices"}}); err != nil {
		return "", fmt.Errorf("devices: %w", err)
	}
	return b.String() + "\n", nil
}

// ethernet is a link of the pod that libvirt opens and neither makes nor takes away.
func ethernet(d model.VMDevice, address *libvirtxml.DomainAddressPCI) libvirtxml.DomainInterface {
	i := libvirtxml.DomainInterface{
		MAC:    &libvirtxml.DomainInterfaceMAC{Address: d.MAC},
		Source: &libvirtxml.DomainInterfaceSource{Ethernet: &libvirtxml.DomainInterfaceSourceEthernet{}},
		Target: &libvirtxml.DomainInterfaceTarget{Dev: d.Target, Managed: "no"},
		Model:  &libvirtxml.DomainInterfaceModel{Type: d.Model},
		MTU:    &libvirtxml.DomainInterfaceMTU{Size: uint(d.MTU)},
		Alias:  &libvirtxml.DomainAlias{Name: "ua-" + d.Name},
		Boot:   boot(d), ACPI: acpi(d), Address: at(address),
	}
	if d.Queues > 0 {
		i.Driver = &libvirtxml.DomainInterfaceDriver{Queues: uint(d.Queues)}
	}
	if d.Down {
		i.Link = &libvirtxml.DomainInterfaceLink{State: "down"}
	}
	if d.BootOrder == 0 { // nothing is ever read from it
		i.ROM = &libvirtxml.DomainROM{Enabled: "no"}
	}
	return i
}

// hostdev is a device of the machine that the guest drives itself.
func hostdev(d model.VMDevice, host, address *libvirtxml.DomainAddressPCI) libvirtxml.DomainHostdev {
	return libvirtxml.DomainHostdev{
		Managed:   "no",
		SubsysPCI: &libvirtxml.DomainHostdevSubsysPCI{Source: &libvirtxml.DomainHostdevSubsysPCISource{Address: host}},
		Alias:     &libvirtxml.DomainAlias{Name: "ua-sriov-" + d.Name},
		Boot:      boot(d), ACPI: acpi(d), Address: at(address),
	}
}

func boot(d model.VMDevice) *libvirtxml.DomainDeviceBoot {
	if d.BootOrder == 0 {
		return nil
	}
	return &libvirtxml.DomainDeviceBoot{Order: d.BootOrder}
}

func acpi(d model.VMDevice) *libvirtxml.DomainDeviceACPI {
	if d.ACPIIndex == 0 {
		return nil
	}
	return &libvirtxml.DomainDeviceACPI{Index: d.ACPIIndex}
}

func at(address *libvirtxml.DomainAddressPCI) *libvirtxml.DomainAddress {
	if address == nil {
		return nil
	}
	return &libvirtxml.DomainAddress{PCI: address}
}

// pci reads an address on the PCI bus (0000:81:01.0); nil is none.
func pci(s string) (*libvirtxml.DomainAddressPCI, error) {
	if s == "" {
		return nil, nil
	}
	var numbers [4]*uint
	parts := strings.FieldsFunc(s, func(r rune) bool { return r == ':' || r == '.' })
	if len(parts) != len(numbers) {
		return nil, fmt.Errorf("%q is no address on the PCI bus", s)
	}
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 16, 16)
		if err != nil {
			return nil, fmt.Errorf("%q is no address on the PCI bus", s)
		}
		u := uint(n)
		numbers[i] = &u
	}
	return &libvirtxml.DomainAddressPCI{Domain: numbers[0], Bus: numbers[1], Slot: numbers[2], Function: numbers[3]}, nil
}
