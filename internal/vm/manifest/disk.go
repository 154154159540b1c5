// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/vm/kubevirt"
)

// Disk is a disk of a VM and its volume.
type Disk struct {
	// Name is the volume's name, At the path of the disk in the manifest, Kind the volume's source: hostDisk,
	// containerDisk, emptyDisk …
	Name, At, Kind string
	// File is the volume's file on the node. Create creates a missing file with Size bytes.
	File   string
	Create bool
	Size   int64
	// Seed is the data for cloud-init.
	Seed *Seed
	// Bus is virtio, sata or scsi.
	Bus             string
	CDROM, ReadOnly bool
	// BootOrder is 0 if the manifest sets none.
	BootOrder uint
	Serial    string
}

// The kinds of volumes with special handling.
const (
	HostDisk      = "hostDisk"
	EmptyDisk     = "emptyDisk"
	ContainerDisk = "containerDisk"
	CloudInit     = "cloudInit"
)

// Ephemeral reports whether the guest's writes are discarded when it ends, as in KubeVirt.
func (d Disk) Ephemeral() bool {
	return d.Kind == ContainerDisk || d.Kind == "ephemeral"
}

// disks returns the VM's disks, in the order of the manifest. Volumes without a disk are not in the guest.
func (d document) disks() ([]Disk, error) {
	var out []Disk
	for i, k := range d.instance.Domain.Devices.Disks {
		at := d.path.Child("domain", "devices", "disks").Index(i)
		if err := model.CheckName(at.Child("name").String(), k.Name); err != nil {
			return nil, err
		}
		v := slices.IndexFunc(d.instance.Volumes, func(v kubevirt.Volume) bool { return v.Name == k.Name })
		if v < 0 {
			name := at.Child("Name").String() // KubeVirt's spelling
			return nil, model.Errorf(model.CodeInvalidConf, "add a volume of that name", "%s: %s '%s' not found.", name,
				name, k.Name)
		}
		disk, err := drive(at, k)
		if err != nil {
			return nil, err
		}
		if err := d.volume(&disk, v); err != nil {
			return nil, err
		}
		out = append(out, disk)
	}
	return out, nil
}

// drive converts the guest's side of a disk.
func drive(at *field.Path, k kubevirt.Disk) (Disk, error) {
	d := Disk{Name: k.Name, At: at.String(), Serial: k.Serial}
	if k.BootOrder != nil {
		d.BootOrder = *k.BootOrder
	}
	kind, bus := "disk", kubevirt.DiskBus("")
	switch {
	case k.CDRom != nil:
		kind, bus, d.CDROM = "cdrom", k.CDRom.Bus, true
		d.ReadOnly = true
	case k.LUN != nil:
		kind, bus, d.ReadOnly = "lun", k.LUN.Bus, k.LUN.ReadOnly
	case k.Disk != nil:
		bus, d.ReadOnly = k.Disk.Bus, k.Disk.ReadOnly
	}
	d.Bus = string(cmp.Or(bus, kubevirt.DiskBusSATA)) // KubeVirt's default on amd64
	if !slices.Contains([]string{"virtio", "sata", "scsi"}, d.Bus) || d.CDROM && d.Bus == "virtio" {
		return d, model.Errorf(model.CodeUnsupportedField, "virtio (no cdrom), sata or scsi", "%s: bus %q is not supported",
			at.Child(kind, "bus"), d.Bus)
	}
	return d, nil
}

// volume converts the volume of a disk.
func (d document) volume(disk *Disk, i int) error {
	v, at := d.instance.Volumes[i], d.path.Child("volumes").Index(i)
	switch {
	case v.HostDisk != nil:
		disk.Kind, disk.File = HostDisk, v.HostDisk.Path
		disk.Create, disk.Size = v.HostDisk.Type == kubevirt.HostDiskExistsOrCreate, v.HostDisk.Capacity.Value()
		if disk.File == "" {
			return model.Errorf(model.CodeInvalidConf, "", "%s: it is required", at.Child("hostDisk", "path"))
		}
		if disk.Create && disk.Size <= 0 {
			return model.Errorf(model.CodeInvalidConf, "for example 1Gi", "%s: it is required for a disk that may be created",
				at.Child("hostDisk", "capacity"))
		}
	case v.EmptyDisk != nil:
		disk.Kind, disk.Size = EmptyDisk, v.EmptyDisk.Capacity.Value()
		if disk.Size <= 0 {
			return model.Errorf(model.CodeInvalidConf, "for example 1Gi", "%s: it is required",
				at.Child("emptyDisk", "capacity"))
		}
	case v.ContainerDisk != nil:
		disk.Kind = ContainerDisk
	case v.CloudInitNoCloud != nil:
		return d.noCloud(disk, *v.CloudInitNoCloud, at.Child("cloudInitNoCloud"))
	case v.CloudInitConfigDrive != nil:
		return d.configDrive(disk, *v.CloudInitConfigDrive, at.Child("cloudInitConfigDrive"))
	case v.PersistentVolumeClaim != nil:
		disk.Kind = "persistentVolumeClaim"
	case v.DataVolume != nil:
		disk.Kind = "dataVolume"
	case v.Ephemeral != nil:
		disk.Kind = "ephemeral"
	default:
		disk.Kind = "volume of another kind"
	}
	return nil
}
