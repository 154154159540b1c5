// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"libvirt.org/go/libvirtxml"

	"github.com/weft-net/weft/internal/model"
)

var update = flag.Bool("update", false, "update the golden files")

func TestGolden(t *testing.T) {
	for name, devices := range map[string][]model.VMDevice{
		"none": nil,
		"tap":  {{Name: "default", Target: "tap0", MAC: "02:00:00:00:00:01", MTU: 1450, Model: "virtio-non-transitional"}},
		"everything": {
			{
				Name: "default", Target: "tap0", MAC: "02:00:00:00:00:01", MTU: 9000, Model: "virtio-non-transitional", Queues: 4,
				BootOrder:  2,
				PCIAddress: "0000:81:01.1", ACPIIndex: 7, Down: true,
			},
			{Name: "blue", Target: "tap16477688c0e", MAC: "02:00:00:00:00:02", MTU: 1500, Model: "e1000"},
		},
		"macvtap": {
			{Name: "own", Target: "pod5b3975651c3", MAC: "02:00:00:00:00:03", MTU: 1500, Model: "virtio-non-transitional"},
		},
		"sriov": {{Name: "fast", HostPCI: "0000:03:02.1", BootOrder: 1, PCIAddress: "0000:06:00.0"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := XML(devices)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got); d != "" {
				t.Errorf("(-%s +got):\n%s", file, d)
			}
			// libvirt's types must parse it.
			var back libvirtxml.Domain
			if err := back.Unmarshal("<domain type='kvm'>" + got + "</domain>"); err != nil {
				t.Fatal(err)
			}
			if back.Devices == nil || len(back.Devices.Interfaces)+len(back.Devices.Hostdevs) != len(devices) {
				t.Errorf("read back: %+v", back.Devices)
			}
		})
	}
}

func TestBadAddress(t *testing.T) {
	for _, d := range []model.VMDevice{
		{Name: "a", PCIAddress: "81:01.0"}, {Name: "a", HostPCI: "0000:zz:00.0"}, {Name: "a", HostPCI: "fffff:00:00.0"},
	} {
		if text, err := XML([]model.VMDevice{d}); err == nil {
			t.Errorf("%+v: %s", d, text)
		}
	}
}
