// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	plan "github.com/weft-net/weft/internal/plan/vm"
)

// TestDevices: an sriov network has the device of its attachment, which is found by the pod's link name or ordinal; a
// device of the input takes precedence.
func TestDevices(t *testing.T) {
	file := filepath.Join(t.TempDir(), "device.json")
	if err := os.WriteFile(file, []byte(`{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:65:00.2"}}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	sriov := func(name string, index int) model.VMInterface {
		return model.VMInterface{
			Name: name, Index: index, Binding: model.VMSRIOV,
			Network: model.VMNetwork{Name: name, Index: index, Definition: name},
		}
	}
	attached := func(link, device, file string) attach.Record {
		return attach.Record{Request: model.Request{IfName: link, Origin: &model.Origin{Device: device, DeviceFile: file}}}
	}
	in := plan.Input{
		VM: model.VM{
			Interfaces: []model.VMInterface{sriov("red", 1), sriov("blue", 2), sriov("green", 3), sriov("white", 4)},
		},
	}
	in.VM.Interfaces[3].Absent = true
	records := []attach.Record{
		{Request: model.Request{IfName: "eth0"}},
		attached(in.PodLink(in.VM.Interfaces[0]), "", file),
		attached(in.PodLink(in.VM.Interfaces[1]), "0000:65:00.3", ""),
		attached(in.PodLink(in.VM.Interfaces[2]), "0000:65:00.4", ""),
		attached(in.PodLink(in.VM.Interfaces[3]), "0000:65:00.5", ""),
	}
	in.Devices = map[string]string{"green": "0000:01:00.0"}
	addDevices(&in, records)
	if d := cmp.Diff(map[string]string{"red": "0000:65:00.2", "blue": "0000:65:00.3", "green": "0000:01:00.0"},
		in.Devices); d != "" {
		t.Errorf("by names (-want +have):\n%s", d)
	}
	in.Devices = nil
	records[1].Request.IfName, records[1].Request.Origin = "net1", &model.Origin{Device: "some-device"}
	records[2].Request.IfName = "net2"
	addDevices(&in, records)
	if d := cmp.Diff(map[string]string{"blue": "0000:65:00.3"}, in.Devices); d != "" {
		t.Errorf("by numbers (-want +have):\n%s", d)
	}
}
