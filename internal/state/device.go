// SPDX-License-Identifier: Apache-2.0

package state

// Device identifies a network device of the node by one of its fields; the others are empty.
type Device struct {
	// Name is the link's name.
	Name string `json:"name,omitempty"`
	// MAC is the link's MAC address.
	MAC MAC `json:"mac,omitzero"`
	// Path is the device's directory below /sys/devices.
	Path string `json:"path,omitempty"`
	// PCI is the device's address on the PCI bus (0000:00:03.0).
	PCI string `json:"pci,omitempty"`
	// ID is an address on the PCI bus or a name on the auxiliary bus.
	ID string `json:"id,omitempty"`
}

// IsZero reports whether no field is set.
func (d Device) IsZero() bool { return d == Device{} }
