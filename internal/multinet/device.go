// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"encoding/json"
	"os"
)

// DeviceInfo describes the device of an interface, as in the device information specification.
type DeviceInfo struct {
	Type      string       `json:"type,omitempty"`
	Version   string       `json:"version,omitempty"`
	PCI       *PCIDevice   `json:"pci,omitempty"`
	VDPA      *VDPADevice  `json:"vdpa,omitempty"`
	VhostUser *VhostDevice `json:"vhost-user,omitempty"`
	Memif     *MemifDevice `json:"memif,omitempty"`
}

// PCIDevice is a device of type pci.
type PCIDevice struct {
	PCIAddress        string `json:"pci-address,omitempty"`
	VhostNet          string `json:"vhost-net,omitempty"`
	RDMADevice        string `json:"rdma-device,omitempty"`
	PFPCIAddress      string `json:"pf-pci-address,omitempty"`
	RepresentorDevice string `json:"representor-device,omitempty"`
}

// VDPADevice is a device of type vdpa.
type VDPADevice struct {
	ParentDevice      string `json:"parent-device,omitempty"`
	Driver            string `json:"driver,omitempty"`
	Path              string `json:"path,omitempty"`
	PCIAddress        string `json:"pci-address,omitempty"`
	PFPCIAddress      string `json:"pf-pci-address,omitempty"`
	RepresentorDevice string `json:"representor-device,omitempty"`
}

// VhostDevice is a device of type vhost-user.
type VhostDevice struct {
	Mode string `json:"mode,omitempty"`
	Path string `json:"path,omitempty"`
}

// MemifDevice is a device of type memif.
type MemifDevice struct {
	Role string `json:"role,omitempty"`
	Path string `json:"path,omitempty"`
	Mode string `json:"mode,omitempty"`
}

// ReadDeviceInfo reads a device information file; nil if it does not exist or is invalid.
func ReadDeviceInfo(path string) *DeviceInfo {
	if path == "" {
		return nil
	}
	raw, err := readFile(path)
	if err != nil {
		return nil
	}
	var d DeviceInfo
	if json.Unmarshal(raw, &d) != nil || d == (DeviceInfo{}) {
		return nil
	}
	return &d
}

// DropDeviceInfo removes the file of an attachment.
func DropDeviceInfo(path string) {
	if path != "" {
		_ = os.Remove(path) // its device is no longer in use
	}
}
