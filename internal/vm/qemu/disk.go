// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"fmt"
	"os"
	"strconv"

	"github.com/weft-net/weft/internal/model"
)

// Disk is a disk of a VM.
type Disk struct {
	Name string
	// File is opened for QEMU, whose user needs no permissions for it. Format is raw or qcow2. It is never probed: a
	// guest could write a header that names any other file as the backing file.
	File, Format string
	// Bus is virtio, sata or scsi.
	Bus             string
	CDROM, ReadOnly bool
	// Ephemeral discards the guest's writes when the VM ends.
	Ephemeral bool
	// BootOrder is 0 if the VM does not boot from the disk.
	BootOrder uint
	Serial    string
}

// disks returns the arguments for all disks, with the controller that they need. The q35 chipset has one for SATA.
func (c Config) disks(fds *files) ([]string, error) {
	var argv []string
	ports, scsi := 0, false
	for i, d := range c.Disks {
		set, err := fds.addDisk(d, i+disksSet)
		if err != nil {
			return nil, err
		}
		argv = append(argv, set...)
		onoff := map[bool]string{true: "on", false: "off"}
		argv = append(argv, "-drive", fmt.Sprintf("if=none,id=drive-%d,file=/dev/fdset/%d,format=%s,readonly=%s,snapshot=%s",
			i, i+disksSet, d.Format, onoff[d.ReadOnly], onoff[d.Ephemeral && !d.ReadOnly]))
		kind := map[bool]string{true: "cd", false: "hd"}[d.CDROM]
		device := ""
		switch d.Bus {
		case "virtio":
			device = "virtio-blk-pci"
		case "scsi":
			if !scsi {
				argv, scsi = append(argv, "-device", "virtio-scsi-pci,id=scsi"), true
			}
			device = "scsi-" + kind + ",bus=scsi.0"
		case "sata":
			if ports == sataPorts {
				return nil, model.Errorf(model.CodeUnsupportedField, "use virtio or scsi for some of them",
					"disk %s: more than %d disks on sata", d.Name, sataPorts)
			}
			device = "ide-" + kind + ",bus=ide." + strconv.Itoa(ports)
			ports++
		default:
			return nil, model.Errorf(model.CodeUnsupportedField, "virtio, sata or scsi", "disk %s: bus %q is not known",
				d.Name, d.Bus)
		}
		device += fmt.Sprintf(",drive=drive-%d,id=disk-%d", i, i)
		if d.Serial != "" {
			device += ",serial=" + escape(d.Serial)
		}
		if d.BootOrder > 0 {
			device += ",bootindex=" + strconv.FormatUint(uint64(d.BootOrder), 10)
		}
		argv = append(argv, "-device", device)
	}
	return argv, nil
}

const (
	sataPorts = 6
	// disksSet is the first descriptor set of a disk; the set before is the console's log.
	disksSet = 2
)

// addDisk opens a disk's file as a descriptor set, from which QEMU chooses the descriptor with the access mode that it
// needs: it opens read-only first.
func (f *files) addDisk(d Disk, set int) (argv []string, err error) {
	rights := []int{os.O_RDONLY}
	if !d.ReadOnly && !d.Ephemeral {
		rights = append(rights, os.O_RDWR)
	}
	for _, r := range rights {
		file, err := os.OpenFile(d.File, r, 0)
		if err != nil {
			return nil, model.Errorf(model.CodeIO, "", "disk %s: %w", d.Name, err)
		}
		f.owned = append(f.owned, file)
		argv = append(argv, "-add-fd", fmt.Sprintf("set=%d,fd=%s", set, f.add(file)))
	}
	return argv, nil
}
