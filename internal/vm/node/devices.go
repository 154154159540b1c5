// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/multinet"
	plan "github.com/weft-net/weft/internal/plan/vm"
)

// addDevices adds the VM's PCI devices from the attachments of its pod, unless the input has them.
func addDevices(in *plan.Input, records []attach.Record) {
	in.OrdinalNames = in.OrdinalNames ||
		slices.ContainsFunc(records, func(r attach.Record) bool { return r.Request.IfName == "net1" })
	for _, nic := range in.VM.Interfaces {
		if nic.Binding != model.VMSRIOV || nic.Absent || in.Devices[nic.Network.Name] != "" {
			continue
		}
		for _, r := range records {
			if r.Request.IfName != in.PodLink(nic) || r.Request.Origin == nil {
				continue
			}
			info := multinet.ReadDeviceInfo(r.Request.Origin.DeviceFile)
			pci := r.Request.Origin.Device
			if strings.Count(pci, ":") != 2 { // a device of another kind, which has a name
				pci = ""
			}
			if info != nil && info.PCI != nil {
				pci = info.PCI.PCIAddress
			}
			if pci != "" {
				if in.Devices == nil {
					in.Devices = map[string]string{}
				}
				in.Devices[nic.Network.Name] = pci
			}
		}
	}
}
