// SPDX-License-Identifier: Apache-2.0

// Package guestimage builds a small guest for VMs without a disk image: a distribution's kernel, and an initrd with
// busybox whose init configures the network by DHCP, reports on the serial console, and executes commands from it.
//
// The image is built with tools of this host and cached; no package is installed. The names in the cache depend on the
// input, so that a changed input is built again.
//
// # Console
//
//	weft-guest: READY                                            the guest accepts commands
//	weft-guest: LEASE eth0 10.0.2.2/24 router=… mtu=… dns=… …    a DHCP lease
//	weft-guest: BEGIN ID … weft-guest: END ID CODE               around the output of a line "@ID COMMAND"
//
// Every other line is a command for its shell.
//
// # Kernel command line
//
//	weft.answer=PORT     guest-tools answer PORT guest: what answers without a command on the console
package guestimage

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed" // the guest's programs
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/oci"
)

//go:embed init.sh
var initScript []byte

//go:embed nic.sh
var nicScript []byte

//go:embed lease.sh
var leaseScript []byte

// Config configures a build.
type Config struct {
	// Cache is the cache directory.
	Cache string
	// Busybox is a static busybox, Tools a program with what busybox lacks (DHCPv6); "" is without.
	Busybox, Tools string
	// Progress, if set, is called before long operations.
	Progress func(format string, args ...any)
}

// DefaultConfig returns a Config with the user's cache directory, the busybox in the PATH, and the guest-tools in the
// directory of weft's programs, if they exist.
func DefaultConfig(programs string) (Config, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return Config{}, model.Errorf(model.CodeInvalidEnv, "set XDG_CACHE_HOME; or "+explicitHint, "guest image: %w", err)
	}
	c := Config{Cache: filepath.Join(cache, "weft")}
	if c.Busybox, err = exec.LookPath("busybox"); err != nil {
		return c, model.Errorf(model.CodeInvalidEnv, "install busybox-static; or "+explicitHint, "guest image: %w", err)
	}
	if tools := filepath.Join(programs, "guest-tools"); programs != "" && exists(tools) {
		c.Tools = tools
	}
	return c, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Image has the files that a VM boots.
type Image struct {
	Kernel string `json:"kernel"`
	Initrd string `json:"initrd"`
}

// Paths of the guest in its container image, for KubeVirt's kernelBoot.
const (
	KernelPath = "/boot/vmlinuz"
	InitrdPath = "/boot/initrd"
)

// OCI returns the guest as a container image with that name and tag, for VMs that KubeVirt boots from a kernel.
func (i Image) OCI(name string) (oci.Image, error) {
	out := oci.Image{
		Name: name, Arch: runtime.GOARCH, Created: time.Unix(0, 0), ByDigest: true,
		Labels: map[string]string{"org.opencontainers.image.title": "weft's guest"},
	}
	for _, f := range []struct{ path, source string }{{KernelPath, i.Kernel}, {InitrdPath, i.Initrd}} {
		b, err := os.ReadFile(f.source)
		if err != nil {
			return out, fmt.Errorf("guest image: %w", err)
		}
		out.Files = append(out.Files, oci.File{Path: f.path, Mode: 0o644, Content: b})
	}
	return out, nil
}

// MinMemory is the memory in MiB that a VM with the image needs.
const MinMemory = 128 // glossary: RAM

const explicitHint = "name a kernel and an initrd by --kernel and --initrd"

// Build returns the image, from the cache if possible.
func (c Config) Build(ctx context.Context) (Image, error) {
	if runtime.GOARCH != "amd64" {
		return Image{}, model.Errorf(model.CodeUnsupportedField, explicitHint,
			"guest image: it can be built on amd64 only, this is %s", runtime.GOARCH)
	}
	if c.Progress == nil {
		c.Progress = func(string, ...any) {}
	}
	dir, err := c.kernel(ctx)
	if err != nil {
		return Image{}, fmt.Errorf("guest image: %w", err)
	}
	tree, err := c.tree(dir)
	if err != nil {
		return Image{}, fmt.Errorf("guest image: %w", err)
	}
	var b bytes.Buffer
	if err := tree.write(&b); err != nil {
		return Image{}, fmt.Errorf("guest image: %w", err)
	}
	sum := sha256.Sum256(b.Bytes())
	image := Image{
		Kernel: filepath.Join(dir, kernelName), Initrd: filepath.Join(dir, "initrd-"+hex.EncodeToString(sum[:6])),
	}
	// The time marks it as used: sweep removes unused images.
	if now := time.Now(); os.Chtimes(image.Initrd, now, now) == nil {
		return image, nil
	}
	if err := c.sweep(dir); err != nil {
		return Image{}, fmt.Errorf("guest image: %w", err)
	}
	return image, writeImage(image.Initrd, b.Bytes())
}

// unusedAge is the age at which sweep removes an unused image.
const unusedAge = 24 * time.Hour

// sweep removes unused images of other versions of the programs. Other versions may be in use at the same time, such as
// by another checkout.
func (c Config) sweep(dir string) error {
	old, err := filepath.Glob(filepath.Join(dir, "initrd-*"))
	for _, path := range old {
		st, problem := os.Stat(path)
		if problem == nil && time.Since(st.ModTime()) < unusedAge {
			continue
		}
		if problem == nil {
			problem = os.Remove(path)
		}
		if !errors.Is(problem, os.ErrNotExist) { // another process has removed it
			err = errors.Join(err, problem)
		}
	}
	return err
}

// writeImage writes a file atomically.
func writeImage(path string, b []byte) error {
	if err := atomicfile.Write(path, b, 0o644, atomicfile.Durable); err != nil {
		return fmt.Errorf("guest image: %w", err)
	}
	return nil
}

// tree returns the guest's file system.
func (c Config) tree(kernel string) (archive, error) {
	busybox, err := os.ReadFile(c.Busybox)
	if err == nil {
		err = checkStatic(busybox)
	}
	if err != nil {
		return nil, model.Errorf(model.CodeInvalidEnv, "install busybox-static; or "+explicitHint, "busybox %q: %w",
			c.Busybox, err)
	}
	mods, err := modules(kernel)
	if err != nil {
		return nil, err
	}
	a := archive{
		dir("bin"), dir("dev"), dir("etc"), dir("etc/acpi"), dir("modules"), dir("proc"), dir("run"), dir("sys"), dir("tmp"),
		device("dev/console", 5, 1),
		program("init", initScript), program("nic", nicScript), program("lease", leaseScript),
		program("bin/busybox", busybox),
	}
	var order bytes.Buffer
	for _, m := range mods {
		a = append(a, entry{name: "modules/" + m.name, mode: modeFile | 0o644, data: m.data})
		fmt.Fprintln(&order, m.name)
	}
	a = append(a, entry{name: "modules/order", mode: modeFile | 0o644, data: order.Bytes()})
	if c.Tools == "" {
		return a, nil
	}
	tools, err := os.ReadFile(c.Tools)
	if err == nil {
		err = checkStatic(tools)
	}
	if err != nil {
		return nil, model.Errorf(model.CodeInvalidEnv, "build it with CGO_ENABLED=0, as make build does",
			"guest-tools %q: %w", c.Tools, err)
	}
	return append(a, program("bin/guest-tools", tools)), nil
}
