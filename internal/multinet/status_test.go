// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/model"
)

func ptr[T any](v T) *T { return &v }

func TestStatus(t *testing.T) {
	first := model.Result{
		Interfaces: []model.Interface{
			{Name: "vethx", MAC: "02:00:00:00:00:09"}, {Name: "eth0", MAC: "02:00:00:00:00:01", MTU: 1450, Sandbox: "/ns"},
		},
		IPs: []model.IP{
			{Interface: ptr(1), Address: netip.MustParsePrefix("10.244.1.5/24"), Gateway: netip.MustParseAddr("10.244.1.1")},
		},
		Routes: []model.Route{
			{
				Dst: netip.MustParsePrefix("10.244.0.0/16"),
			}, {Dst: netip.MustParsePrefix("0.0.0.0/0"), GW: netip.MustParseAddr("10.244.1.1")},
		},
		DNS: model.DNS{Nameservers: []string{"10.0.0.10"}, Domain: "d", Search: []string{"s"}, Options: []string{"ndots:5"}},
	}
	second := model.Result{
		Interfaces: []model.Interface{{Name: "net1", MAC: "02:00:00:00:00:02", Sandbox: "/ns"}},
		IPs: []model.IP{
			{Address: netip.MustParsePrefix("fd00::5/64")}, {Interface: ptr(0), Address: netip.MustParsePrefix("10.1.2.3/24")},
		},
		Routes: []model.Route{{Dst: netip.MustParsePrefix("::/0")}},
	}
	device := &DeviceInfo{Type: "pci", Version: "1.1.0", PCI: &PCIDevice{PCIAddress: "0000:03:02.3", RDMADevice: "mlx5_3"}}
	got, err := Status([]Got{
		{Label: "cbr0", Primary: true, Result: first, Version: "1.0.0"},
		{Label: "default/macvlan-conf", Result: second, Device: device, Version: "0.3.1"},
		{Label: "none", Version: "1.0.0"},
		{Label: "old", Result: second, Version: "0.2.0"},
		{Label: "unversioned", Result: second},
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = `[{
    "name": "cbr0",
    "interface": "eth0",
    "ips": [
        "10.244.1.5"
    ],
    "mac": "02:00:00:00:00:01",
    "mtu": 1450,
    "default": true,
    "dns": {
        "nameservers": [
            "10.0.0.10"
        ],
        "domain": "d",
        "search": [
            "s"
        ],
        "options": [
            "ndots:5"
        ]
    },
    "gateway": [
        "10.244.1.1"
    ]
},{
    "name": "default/macvlan-conf",
    "interface": "net1",
    "ips": [
        "fd00::5",
        "10.1.2.3"
    ],
    "mac": "02:00:00:00:00:02",
    "dns": {},
    "device-info": {
        "type": "pci",
        "version": "1.1.0",
        "pci": {
            "pci-address": "0000:03:02.3",
            "rdma-device": "mlx5_3"
        }
    },
    "gateway": [
        "\u003cnil\u003e"
    ]
}]`
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// Several interfaces of one network in the container are an element each; the default is where the first gateway is.
func TestStatusManyInterfaces(t *testing.T) {
	r := model.Result{
		Interfaces: []model.Interface{{Name: "a", Sandbox: "/ns"}, {Name: "host"}, {Name: "b", Sandbox: "/ns"}},
		IPs: []model.IP{
			{Interface: ptr(0), Address: netip.MustParsePrefix("10.1.0.2/24")},
			{Interface: ptr(2), Address: netip.MustParsePrefix("10.2.0.2/24"), Gateway: netip.MustParseAddr("10.2.0.1")},
			{Interface: ptr(1), Address: netip.MustParsePrefix("10.3.0.2/24")},
			{Address: netip.MustParsePrefix("10.4.0.2/24")},
		},
	}
	got := Got{Label: "n", Primary: true, Result: r, Version: "1.1.0"}.entries()
	want := []statusEntry{
		{Name: "n", Interface: "a", IPs: []string{"10.1.0.2"}},
		{Name: "n", Interface: "b", IPs: []string{"10.2.0.2", "10.4.0.2"}, Default: true},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// The gateways are those of the network's plugins, whatever became of them; a list that is empty is one, too.
func TestStatusOfThePluginsRoutes(t *testing.T) {
	one := []model.Interface{{Name: "net1", Sandbox: "/ns"}}
	own := []model.Route{{Dst: netip.MustParsePrefix("0.0.0.0/0"), GW: netip.MustParseAddr("10.1.0.1")}}
	for _, tc := range []struct {
		name   string
		result model.Result
		want   []string
	}{
		{"as they are", model.Result{Interfaces: one, Routes: own}, []string{"10.1.0.1"}},
		{"left out", model.Result{Interfaces: one, PluginRoutes: own}, []string{"10.1.0.1"}},
		{"added", model.Result{Interfaces: one, Routes: own, PluginRoutes: []model.Route{}}, nil},
	} {
		if got := (Got{Label: "n", Result: tc.result, Version: "1.0.0"}).entries(); !slices.Equal(got[0].Gateway, tc.want) {
			t.Errorf("%s: %v", tc.name, got[0].Gateway)
		}
	}
}

func TestEvents(t *testing.T) {
	r := model.Result{
		IPs: []model.IP{{Address: netip.MustParsePrefix("10.244.1.5/24")}, {Address: netip.MustParsePrefix("fd00::5/64")}},
	}
	e, ok := Added("eth0", "cbr0", r)
	if want := "Add eth0 [10.244.1.5/24 fd00::5/64] from cbr0"; !ok || e.Message != want ||
		e.Reason != "AddedInterface" || e.Warning {
		t.Errorf("%+v", e)
	}
	if _, ok := Added("net1", "aux", model.Result{}); ok {
		t.Error("an event without an interface")
	}
}
