// SPDX-License-Identifier: Apache-2.0

// Package domain marshals a VM's network devices as libvirt XML: an element per interface, as in the devices of a
// domain. Its input is only the result of plan/vm, and it has no more of libvirt's schema than needed; the tests read
// the XML back with the complete schema.
package domain

import (
	"encoding/xml"
	"fmt"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// devices is the element devices. The children of this and the elements below are in the order of libvirt's schema.
type devices struct {
	XMLName    xml.Name          `xml:"devices"`
	Interfaces []ethernetElement `xml:"interface"`
	Hostdevs   []hostdevElement  `xml:"hostdev"`
}

type ethernetElement struct {
	Type    string      `xml:"type,attr"`
	MAC     addressed   `xml:"mac"`
	Boot    *order      `xml:"boot"`
	Target  target      `xml:"target"`
	Model   typed       `xml:"model"`
	Driver  *queues     `xml:"driver"`
	Link    *linkState  `xml:"link"`
	MTU     size        `xml:"mtu"`
	ROM     *enabled    `xml:"rom"`
	ACPI    *index      `xml:"acpi"`
	Alias   named       `xml:"alias"`
	Address *pciAddress `xml:"address"`
}

type hostdevElement struct {
	Mode    string      `xml:"mode,attr"`
	Type    string      `xml:"type,attr"`
	Managed string      `xml:"managed,attr"`
	Source  *pciAddress `xml:"source>address"`
	Boot    *order      `xml:"boot"`
	ACPI    *index      `xml:"acpi"`
	Alias   named       `xml:"alias"`
	Address *pciAddress `xml:"address"`
}

type (
	addressed struct {
		Address string `xml:"address,attr"`
	}
	order struct {
		Order uint `xml:"order,attr"`
	}
	target struct {
		Dev     string `xml:"dev,attr"`
		Managed string `xml:"managed,attr"`
	}
	typed struct {
		Type string `xml:"type,attr"`
	}
	queues struct {
		Queues int `xml:"queues,attr"`
	}
	linkState struct {
		State string `xml:"state,attr"`
	}
	size struct {
		Size int `xml:"size,attr"`
	}
	enabled struct {
		Enabled string `xml:"enabled,attr"`
	}
	index struct {
		Index uint `xml:"index,attr"`
	}
	named struct {
		Name string `xml:"name,attr"`
	}
	// pciAddress is a PCI address: of the node without a type, of the guest with a type.
	pciAddress struct {
		Type     string `xml:"type,attr,omitempty"`
		Domain   string `xml:"domain,attr"`
		Bus      string `xml:"bus,attr"`
		Slot     string `xml:"slot,attr"`
		Function string `xml:"function,attr"`
	}
)

// XML returns the devices element of a domain with the network devices.
func XML(nics []model.VMDevice) (string, error) {
	var list devices
	for _, d := range nics {
		address, err := pci(d.PCIAddress, "pci")
		if err != nil {
			return "", fmt.Errorf("interface %s: %w", d.Name, err)
		}
		if d.HostPCI == "" {
			list.Interfaces = append(list.Interfaces, ethernet(d, address))
			continue
		}
		host, err := pci(d.HostPCI, "")
		if err != nil {
			return "", fmt.Errorf("interface %s: device: %w", d.Name, err)
		}
		list.Hostdevs = append(list.Hostdevs, hostdevElement{
			Mode: "subsystem", Type: "pci", Managed: "no", Source: host,
			Boot: boot(d), ACPI: acpi(d), Alias: named{"ua-sriov-" + d.Name}, Address: address,
		})
	}
	b, err := xml.MarshalIndent(list, "", "  ")
	if err != nil {
		return "", fmt.Errorf("devices: %w", err)
	}
	return string(b) + "\n", nil
}

// ethernet returns an interface of a link that exists in the pod: libvirt opens it, and neither creates nor deletes it.
func ethernet(d model.VMDevice, address *pciAddress) ethernetElement {
	i := ethernetElement{
		Type: "ethernet", MAC: addressed{d.MAC}, Target: target{d.Target, "no"}, Model: typed{d.Model}, MTU: size{d.MTU},
		Alias: named{"ua-" + d.Name},
		Boot:  boot(d), ACPI: acpi(d), Address: address,
	}
	if d.Queues > 0 {
		i.Driver = &queues{d.Queues}
	}
	if d.Down {
		i.Link = &linkState{"down"}
	}
	if d.BootOrder == 0 { // the option ROM is never used
		i.ROM = &enabled{"no"}
	}
	return i
}

func boot(d model.VMDevice) *order {
	if d.BootOrder == 0 {
		return nil
	}
	return &order{d.BootOrder}
}

func acpi(d model.VMDevice) *index {
	if d.ACPIIndex == 0 {
		return nil
	}
	return &index{d.ACPIIndex}
}

// pci parses a PCI address (0000:81:01.0); "" is nil.
func pci(s, typ string) (*pciAddress, error) {
	if s == "" {
		return nil, nil
	}
	var numbers [4]uint64
	parts := strings.FieldsFunc(s, func(r rune) bool { return r == ':' || r == '.' })
	if len(parts) != len(numbers) {
		return nil, fmt.Errorf("%q is not a PCI address", s)
	}
	for i, part := range parts {
		var err error
		if numbers[i], err = strconv.ParseUint(part, 16, 16); err != nil {
			return nil, fmt.Errorf("%q is not a PCI address", s)
		}
	}
	return &pciAddress{
		Type: typ, Domain: fmt.Sprintf("0x%04x", numbers[0]), Bus: fmt.Sprintf("0x%02x", numbers[1]),
		Slot:     fmt.Sprintf("0x%02x", numbers[2]),
		Function: fmt.Sprintf("0x%x", numbers[3]),
	}, nil
}
