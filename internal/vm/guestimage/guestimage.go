// SPDX-License-Identifier: Apache-2.0

// Package guestimage makes what a virtual machine can boot where nobody brings an image: a distribution's kernel, and a
// first program of busybox that asks for its addresses, says on its serial console what it was told, and obeys there.
//
// Both are made by this machine's own tools and kept in a cache; no package is installed. What is kept is named by what
// it was made of, so that it is made again when that has changed.
//
// # What the guest says
//
//	weft-guest: READY                                            it obeys now
//	weft-guest: LEASE eth0 10.0.2.2/24 router=… mtu=… dns=… …    DHCP has told it
//	weft-guest: BEGIN ID … weft-guest: END ID CODE               around what a line "@ID COMMAND" printed
//
// Every other line is a command for its shell.
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
)

//go:embed init.sh
var initScript []byte

//go:embed card.sh
var cardScript []byte

//go:embed lease.sh
var leaseScript []byte

// Config is what an image is made with.
type Config struct {
	// Cache is where images are kept.
	Cache string
	// Busybox is a static busybox, Tools a program with what busybox lacks (DHCPv6); "" is without.
	Busybox, Tools string
	// Say, which may be nil, is told what takes long.
	Say func(format string, args ...any)
}

// Usual is how an image is made where nothing else is said: in the user's cache, with the busybox of the path, and with
// the guest-tools that stand beside weft's programs, if they do.
func Usual(programs string) (Config, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return Config{}, model.Faultf(model.CodeInvalidEnv, "set XDG_CACHE_HOME; or "+wayOut, "guest image: %w", err)
	}
	c := Config{Cache: filepath.Join(cache, "weft")}
	if c.Busybox, err = exec.LookPath("busybox"); err != nil {
		return c, model.Faultf(model.CodeInvalidEnv, "install busybox-static; or "+wayOut, "guest image: %w", err)
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

// Image are the files that a machine boots.
type Image struct {
	Kernel string `json:"kernel"`
	Initrd string `json:"initrd"`
}

// Memory is what a machine with such an image needs at least, in MiB.
const Memory = 128

const wayOut = "name a kernel and an initrd by --kernel and --initrd"

// Make gives the image, out of the cache where it is there.
func (c Config) Make(ctx context.Context) (Image, error) {
	if runtime.GOARCH != "amd64" {
		return Image{}, model.Faultf(model.CodeUnsupportedField, wayOut,
			"guest image: it can be made on amd64 only, this is %s", runtime.GOARCH)
	}
	if c.Say == nil {
		c.Say = func(string, ...any) {}
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
	// It is marked as used: others may take away what nobody has used for long.
	if now := time.Now(); os.Chtimes(image.Initrd, now, now) == nil {
		return image, nil
	}
	if err := c.sweep(dir); err != nil {
		return Image{}, fmt.Errorf("guest image: %w", err)
	}
	return image, keep(image.Initrd, b.Bytes())
}

// unused is after how long an image is taken away that nobody asked for.
const unused = 24 * time.Hour

// sweep takes away what earlier versions of the programs were in. Other versions may be in use at the same time, by
// another checkout for instance.
func (c Config) sweep(dir string) error {
	old, err := filepath.Glob(filepath.Join(dir, "initrd-*"))
	for _, path := range old {
		st, problem := os.Stat(path)
		if problem == nil && time.Since(st.ModTime()) < unused {
			continue
		}
		if problem == nil {
			problem = os.Remove(path)
		}
		if !errors.Is(problem, os.ErrNotExist) { // somebody else has taken it away
			err = errors.Join(err, problem)
		}
	}
	return err
}

// keep writes a file that is whole whenever it is there.
func keep(path string, b []byte) error {
	if err := atomicfile.Write(path, b, 0o644, atomicfile.Durable); err != nil {
		return fmt.Errorf("guest image: %w", err)
	}
	return nil
}

// tree is the guest's file system.
func (c Config) tree(kernel string) (archive, error) {
	busybox, err := os.ReadFile(c.Busybox)
	if err == nil {
		err = static(busybox)
	}
	if err != nil {
		return nil, model.Faultf(model.CodeInvalidEnv, "install busybox-static; or "+wayOut, "busybox %q: %w", c.Busybox, err)
	}
	mods, err := modules(kernel)
	if err != nil {
		return nil, err
	}
	a := archive{
		dir("bin"), dir("dev"), dir("etc"), dir("etc/acpi"), dir("modules"), dir("proc"), dir("run"), dir("sys"), dir("tmp"),
		device("dev/console", 5, 1),
		program("init", initScript), program("card", cardScript), program("lease", leaseScript),
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
		err = static(tools)
	}
	if err != nil {
		return nil, model.Faultf(model.CodeInvalidEnv, "build it with CGO_ENABLED=0, as make build does",
			"guest-tools %q: %w", c.Tools, err)
	}
	return append(a, program("bin/guest-tools", tools)), nil
}
