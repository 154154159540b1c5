// SPDX-License-Identifier: Apache-2.0

package qemu_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/vm/guestimage"
	"github.com/weft-net/weft/internal/vm/qemu"
)

func TestMain(m *testing.M) { os.Exit(nettest.MainWithPrograms(m)) }

// guest is the image that the VMs of a test boot.
func guest(t *testing.T) guestimage.Image {
	t.Helper()
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		nettest.SkipMissing(t, "there is no qemu-system-x86_64")
	}
	c, err := guestimage.DefaultConfig(nettest.Programs(t))
	if err != nil {
		nettest.SkipMissing(t, err.Error())
	}
	c.Progress = t.Logf
	image, err := c.Build(t.Context())
	if err != nil {
		nettest.SkipMissing(t, err.Error())
	}
	return image
}

// TestBoot: a VM boots, runs commands from its console, and stops by ACPI shutdown.
func TestBoot(t *testing.T) {
	image := guest(t)
	dir := t.TempDir()
	m, err := qemu.Start(t.Context(), qemu.Config{
		Name: "a,b", Dir: dir, Kernel: image.Kernel, Initrd: image.Initrd, Memory: guestimage.MinMemory,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Kill()
	c, err := qemu.OpenConsole(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 120*time.Second)
	defer cancel()
	if _, err := c.Await(ctx, "weft-guest: READY"); err != nil {
		t.Fatal(err)
	}
	out, err := c.Run(ctx, "echo hello; uname -r")
	if err != nil || !strings.HasPrefix(out, "hello\n") {
		t.Errorf("%q %v", out, err)
	}
	if _, err := c.Run(ctx, "false"); err == nil {
		t.Error("false succeeded")
	}
	if s, err := m.State(ctx); err != nil || s != "running" {
		t.Errorf("it is %q: %v", s, err)
	}
	if err := m.Unplug(ctx, model.VMDevice{Name: "gone"}); err != nil {
		t.Errorf("a device that is gone: %v", err)
	}
	m.Stop(ctx)
	if m.Err() != nil || ctx.Err() != nil {
		t.Errorf("not stopped by ACPI shutdown: %v %v; %s", m.Err(), ctx.Err(), c.Log())
	}
}
