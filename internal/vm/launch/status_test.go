// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/vm"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// TestInterfaces: the status of a VM's interfaces, and their order.
func TestInterfaces(t *testing.T) {
	r := phase1.Record{Networks: []phase1.Network{
		{Network: vm.Network{
			Interface: model.VMInterface{Name: "blue", Binding: model.VMBridge}, PodLink: "pod1",
			Device: model.VMDevice{MAC: "02:00:00:00:00:01", Down: true},
		}},
		{Network: vm.Network{
			Interface: model.VMInterface{
				Name: "default", Binding: model.VMMasquerade, Network: model.VMNetwork{Primary: true, Pod: true},
			}, PodLink: "eth0",
			Device: model.VMDevice{MAC: "02:00:00:00:00:02", Queues: 2},
		}},
	}}
	six := netip.MustParseAddr("fd00::5")
	got := interfaces(r, map[string][]netip.Addr{"default": {netip.MustParseAddr("10.1.2.3"), six}, "blue": {six}})
	want := []Interface{
		{
			IP: "10.1.2.3", MAC: "02:00:00:00:00:02", Name: "default", IPs: []string{"10.1.2.3", "fd00::5"},
			PodInterfaceName: "eth0",
			InfoSource:       "domain", QueueCount: 2, LinkState: "up",
		},
		{
			MAC: "02:00:00:00:00:01", Name: "blue", PodInterfaceName: "pod1", InfoSource: "domain, multus-status", QueueCount: 1,
			LinkState: "down",
		},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
