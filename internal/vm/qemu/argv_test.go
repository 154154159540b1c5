// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/model"
)

// TestDevices: QEMU's arguments for network devices.
func TestDevices(t *testing.T) {
	tap, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer tap.Close()
	for _, c := range []struct {
		name   string
		device model.VMDevice
		taps   int
		vhost  int
		want   []string
	}{
		{
			"virtio",
			model.VMDevice{Name: "default", MAC: "02:00:00:00:00:01", MTU: 1450, Model: "virtio-non-transitional"},
			1, 0,
			[]string{
				"-netdev", "tap,id=host-default,fd=3,vhost=off",
				"-device",
				"virtio-net-pci-non-transitional,netdev=host-default,id=ua-default,mac=02:00:00:00:00:01,host_mtu=1450,romfile=",
			},
		},
		{
			"queues and vhost",
			model.VMDevice{
				Name: "a", MAC: "02:00:00:00:00:01", Model: "virtio-transitional", Queues: 2, BootOrder: 3, ACPIIndex: 7,
				PCIAddress: "0000:00:1e.0",
			},
			2, 2,
			[]string{
				"-netdev", "tap,id=host-a,fds=3:4,vhost=on,vhostfds=5:6",
				"-device",
				"virtio-net-pci-transitional,netdev=host-a,id=ua-a,mac=02:00:00:00:00:01,mq=on,vectors=6,bootindex=3,acpi-index=7,addr=0x1e.0",
			},
		},
		{
			"e1000",
			model.VMDevice{Name: "a", MAC: "02:00:00:00:00:01", MTU: 1500, Model: "e1000"},
			1, 0,
			[]string{
				"-netdev", "tap,id=host-a,fd=3,vhost=off", "-device", "e1000,netdev=host-a,id=ua-a,mac=02:00:00:00:00:01,romfile=",
			},
		},
		{
			"igb", // since QEMU 8.0
			model.VMDevice{Name: "a", MAC: "02:00:00:00:00:01", Model: "igb"},
			1, 0,
			[]string{
				"-netdev", "tap,id=host-a,fd=3,vhost=off", "-device", "igb,netdev=host-a,id=ua-a,mac=02:00:00:00:00:01,romfile=",
			},
		},
		{
			"sriov",
			model.VMDevice{Name: "a", HostPCI: "0000:81:01.0"},
			0, 0,
			[]string{"-device", "vfio-pci,host=0000:81:01.0,id=ua-sriov-a"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			conf := Config{
				Name: "x", Devices: []model.VMDevice{c.device},
				Taps:     map[string][]*os.File{c.device.Name: slices.Repeat([]*os.File{tap}, c.taps)},
				VhostNet: map[string][]*os.File{c.device.Name: slices.Repeat([]*os.File{tap}, c.vhost)},
			}
			var fds files
			got, err := conf.device(c.device, &fds)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestBadDevices: an invalid device is an error before QEMU is started.
func TestBadDevices(t *testing.T) {
	dir := t.TempDir()
	tap, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer tap.Close()
	for want, c := range map[string]Config{
		"VM x: interface a: no tap is open": {
			Name: "x", Dir: dir, Devices: []model.VMDevice{{Name: "a", Model: "virtio"}},
		},
		`VM x: interface a: model "sb" is not known`: {
			Name: "x", Dir: dir, Devices: []model.VMDevice{{Name: "a", Model: "sb"}}, Taps: map[string][]*os.File{"a": {tap}},
		},
		"image of the VM: open /nowhere: ": {Name: "x", Dir: dir, Kernel: "/nowhere"},
	} {
		if _, err := Start(t.Context(), c); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "qemu.log")); len(left) > 0 {
		t.Errorf("something was started: %v", left)
	}
}
