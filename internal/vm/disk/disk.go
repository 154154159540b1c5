// SPDX-License-Identifier: Apache-2.0

// Package disk finds the files behind the disks of a machine's manifest, and makes those that belong to the machine
// alone: empty ones, and what cloud-init reads.
package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/vm/manifest"
	"github.com/weft-net/weft/internal/vm/qemu"
)

// Config says where disks are.
type Config struct {
	// Dir is the machine's: what is made for it alone is there and goes with it.
	Dir string
	// Files are the files of volumes that name none on this node, by the volume's name.
	Files map[string]string
	// Note is told what is left out.
	Note func(string)
}

// Bootable tells whether one of the disks may have a system on it.
func (c Config) Bootable(all []manifest.Disk) bool {
	return slices.ContainsFunc(all, func(d manifest.Disk) bool {
		return c.Files[d.Name] != "" || d.Kind == manifest.HostDisk
	})
}

// Open gives the disks as a hypervisor gets them. A disk whose volume is not on this node is left out.
func (c Config) Open(ctx context.Context, all []manifest.Disk) (disks []qemu.Disk, err error) {
	for name := range c.Files {
		if !slices.ContainsFunc(all, func(d manifest.Disk) bool { return d.Name == name }) {
			return nil, model.Faultf(model.CodeInvalidConf, "name one of the manifest's disks",
				"--disk %s: the machine has no disk of that name", name)
		}
	}
	ordered := slices.ContainsFunc(all, func(d manifest.Disk) bool { return d.BootOrder > 0 })
	for i, d := range all {
		out := qemu.Disk{
			Name: d.Name, Format: "raw", Bus: d.Bus, CDROM: d.CDROM, ReadOnly: d.ReadOnly, BootOrder: d.BootOrder,
			Serial: d.Serial,
		}
		if !ordered {
			out.BootOrder = uint(i) + 1
		}
		found, err := c.find(ctx, d, &out)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.At, err)
		}
		if found {
			disks = append(disks, out)
		}
	}
	return disks, nil
}

// find finds or makes a disk's file.
func (c Config) find(ctx context.Context, d manifest.Disk, out *qemu.Disk) (found bool, err error) {
	own := filepath.Join(c.Dir, "disk-"+d.Name)
	given, isGiven := c.Files[d.Name]
	switch {
	case isGiven:
		out.File, out.Forget = given, d.Ephemeral()
		if out.Forget { // the guest never writes it: it may say itself what it is
			out.Format, err = format(given)
		}
		return true, errors.Join(err, plain(given))
	case d.Kind == manifest.HostDisk:
		out.File = d.File
		if _, err := os.Stat(d.File); errors.Is(err, os.ErrNotExist) && d.Create {
			return true, sparse(d.File, d.Size)
		}
		return true, plain(d.File)
	case d.Kind == manifest.EmptyDisk:
		out.File = own
		return true, sparse(own, d.Size)
	case d.Seed != nil:
		out.File, out.ReadOnly = own, true
		err := c.seed(ctx, own, *d.Seed)
		if errors.Is(err, errNoTool) {
			c.Note(fmt.Sprintf("disk %s is left out: %v: install xorriso", d.Name, err))
			return false, nil
		}
		return true, err
	case d.Kind == manifest.CloudInit:
		c.Note(
			fmt.Sprintf("disk %s is left out: its data are in a Secret of the cluster; write them into the manifest as userData",
				d.Name),
		)
		return false, nil
	}
	c.Note(
		fmt.Sprintf("disk %s (%s) is left out: it is not on this node; give its file with --disk %s=FILE", d.Name,
			d.Kind, d.Name),
	)
	return false, nil
}

// plain makes sure that a path is a disk's, and is there.
func plain(path string) error {
	st, err := os.Stat(path)
	if err == nil && !st.Mode().IsRegular() && st.Mode()&os.ModeDevice == 0 {
		err = fmt.Errorf("%s is neither a file nor a device", path)
	}
	if err != nil {
		return model.Faultf(model.CodeIO, "", "%w", err)
	}
	return nil
}

// sparse makes a file that takes no room yet. One that is there stays.
func sparse(path string, size int64) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err == nil {
		err = errors.Join(f.Truncate(size), f.Close())
		if err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}
	if err != nil {
		return model.Faultf(model.CodeIO, "", "%w", err)
	}
	return nil
}

// format looks at the first bytes of an image.
func format(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", model.Faultf(model.CodeIO, "", "%w", err)
	}
	defer func() { _ = f.Close() }()
	head, err := io.ReadAll(io.LimitReader(f, 4))
	if err != nil {
		return "", model.Faultf(model.CodeIO, "", "%w", err)
	}
	if strings.HasPrefix(string(head), "QFI\xfb") {
		return "qcow2", nil
	}
	return "raw", nil
}
