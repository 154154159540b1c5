// SPDX-License-Identifier: Apache-2.0

// Package disk finds the files of the disks of a VM's manifest, and creates those that belong to the VM: empty disks,
// and cloud-init's data.
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

// Config configures the disks of a VM.
type Config struct {
	// Dir is the VM's directory: files that are created for the VM are in it, and are removed with it.
	Dir string
	// Files are the files of volumes that are not on this node, by the volume's name.
	Files map[string]string
	// Note is called for each skipped disk.
	Note func(string)
}

// Bootable reports whether one of the disks may have an operating system.
func (c Config) Bootable(all []manifest.Disk) bool {
	return slices.ContainsFunc(all, func(d manifest.Disk) bool {
		return c.Files[d.Name] != "" || d.Kind == manifest.HostDisk
	})
}

// Open returns the disks for a hypervisor. It skips disks whose volumes are not on this node.
func (c Config) Open(ctx context.Context, all []manifest.Disk) (disks []qemu.Disk, err error) {
	for name := range c.Files {
		if !slices.ContainsFunc(all, func(d manifest.Disk) bool { return d.Name == name }) {
			return nil, model.Errorf(model.CodeInvalidConf, "choose a disk of the manifest",
				"--disk %s: the VM has no disk of that name", name)
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

// find finds or creates a disk's file.
func (c Config) find(ctx context.Context, d manifest.Disk, out *qemu.Disk) (found bool, err error) {
	own := filepath.Join(c.Dir, "disk-"+d.Name)
	file, fileSet := c.Files[d.Name]
	switch {
	case fileSet:
		out.File, out.Ephemeral = file, d.Ephemeral()
		if out.Ephemeral { // the guest never writes to it, so its format can be probed
			out.Format, err = probeFormat(file)
		}
		return true, errors.Join(err, checkDisk(file))
	case d.Kind == manifest.HostDisk:
		out.File = d.File
		if _, err := os.Stat(d.File); errors.Is(err, os.ErrNotExist) && d.Create {
			return true, createSparse(d.File, d.Size)
		}
		return true, checkDisk(d.File)
	case d.Kind == manifest.EmptyDisk:
		out.File = own
		return true, createSparse(own, d.Size)
	case d.Seed != nil:
		out.File, out.ReadOnly = own, true
		err := c.seed(ctx, own, *d.Seed)
		if errors.Is(err, errNoTool) {
			c.Note(fmt.Sprintf("disk %s is skipped: %v: install xorriso", d.Name, err))
			return false, nil
		}
		return true, err
	case d.Kind == manifest.CloudInit:
		c.Note(
			fmt.Sprintf("disk %s is skipped: its data is in a Secret of the cluster; set userData in the manifest",
				d.Name),
		)
		return false, nil
	}
	c.Note(
		fmt.Sprintf("disk %s (%s) is skipped: it is not on this node; set its file with --disk %s=FILE", d.Name,
			d.Kind, d.Name),
	)
	return false, nil
}

// checkDisk checks that a path is a file or a device.
func checkDisk(path string) error {
	st, err := os.Stat(path)
	if err == nil && !st.Mode().IsRegular() && st.Mode()&os.ModeDevice == 0 {
		err = fmt.Errorf("%s is neither a file nor a device", path)
	}
	if err != nil {
		return model.Errorf(model.CodeIO, "", "%w", err)
	}
	return nil
}

// createSparse creates a sparse file, unless it exists.
func createSparse(path string, size int64) (err error) {
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
		return model.Errorf(model.CodeIO, "", "%w", err)
	}
	return nil
}

// probeFormat returns an image's format by its first bytes.
func probeFormat(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", model.Errorf(model.CodeIO, "", "%w", err)
	}
	defer func() { _ = f.Close() }()
	head, err := io.ReadAll(io.LimitReader(f, 4))
	if err != nil {
		return "", model.Errorf(model.CodeIO, "", "%w", err)
	}
	if strings.HasPrefix(string(head), "QFI\xfb") {
		return "qcow2", nil
	}
	return "raw", nil
}
