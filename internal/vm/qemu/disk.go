// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"fmt"
	"os"
	"strconv"

	"github.com/weft-net/weft/internal/model"
)

// Disk is a disk of a machine.
type Disk struct {
	Name string
	// File is opened for QEMU, whose user needs no rights to it. Format is raw or qcow2: never found out from a file that
	// a guest has written, because what it writes may claim to be an image on top of any other file.
	File, Format string
	// Bus is virtio, sata or scsi.
	Bus             string
	CDROM, ReadOnly bool
	// Forget has what the guest writes forgotten when the machine ends.
	Forget bool
	// BootOrder is 0 where the disk is not booted from.
	BootOrder uint
	Serial    string
}

// disks are the words for all disks, with the controller that they need. q35 has one for sata.
func (c Config) disks(fds *files) ([]string, error) {
	var argv []string
	ports, scsi := 0, false
	for i, d := range c.Disks {
		set, err := fds.disk(d, i+disksSet)
		if err != nil {
			return nil, err
		}
		argv = append(argv, set...)
		onoff := map[bool]string{true: "on", false: "off"}
		argv = append(argv, "-drive", fmt.Sprintf("if=none,id=drive-%d,file=/dev/fdset/%d,format=%s,readonly=%s,snapshot=%s",
			i, i+disksSet, d.Format, onoff[d.ReadOnly], onoff[d.Forget && !d.ReadOnly]))
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
				return nil, model.Faultf(model.CodeUnsupportedField, "put some of them on virtio or scsi",
					"disk %s: more than %d disks on sata", d.Name, sataPorts)
			}
			device = "ide-" + kind + ",bus=ide." + strconv.Itoa(ports)
			ports++
		default:
			return nil, model.Faultf(model.CodeUnsupportedField, "virtio, sata or scsi", "disk %s: bus %q is not known",
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
	// disksSet is the first set of descriptors that is a disk's; the console's log has the one before.
	disksSet = 2
)

// disk opens a disk's file as a set of descriptors, from which QEMU takes the one that has the rights it wants: it
// reads first.
func (f *files) disk(d Disk, set int) (argv []string, err error) {
	rights := []int{os.O_RDONLY}
	if !d.ReadOnly && !d.Forget {
		rights = append(rights, os.O_RDWR)
	}
	for _, r := range rights {
		file, err := os.OpenFile(d.File, r, 0)
		if err != nil {
			return nil, model.Faultf(model.CodeIO, "", "disk %s: %w", d.Name, err)
		}
		f.own = append(f.own, file)
		argv = append(argv, "-add-fd", fmt.Sprintf("set=%d,fd=%s", set, f.add(file)))
	}
	return argv, nil
}
