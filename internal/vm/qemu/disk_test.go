// SPDX-License-Identifier: Apache-2.0

package qemu_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/vm/qemu"
)

const bootSaid = "booted from a disk"

// bootSector writes itself to the disk's second sector, writes a text to the serial line, and halts.
func bootSector() []byte {
	code := []byte{
		0xfc, 0x31, 0xc0, 0x8e, 0xd8, 0x8e, 0xc0, // cld; ds = es = 0
		// write one sector, the second, of the drive in dl
		0xb8, 0x01, 0x03, 0xb9, 0x02, 0x00, 0xb6, 0x00, 0xbb, 0x00, 0x7c, 0xcd, 0x13,
		0xbe, 0x25, 0x7c, 0xba, 0xf8, 0x03, // the text, the port
		0xac, 0x84, 0xc0, 0x74, 0x03, 0xee, 0xeb, 0xf8, // each letter until a zero
		0xf4, 0xeb, 0xfd, // halt
	}
	sector := make([]byte, 512)
	copy(sector[copy(sector, code):], bootSaid+"\r\n")
	sector[510], sector[511] = 0x55, 0xaa
	return sector
}

// TestDiskBoot: a VM boots from its disk on each bus; an ephemeral disk is not written.
func TestDiskBoot(t *testing.T) {
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		nettest.SkipMissing(t, "there is no qemu-system-x86_64")
	}
	for _, c := range []struct {
		bus    string
		forget bool
	}{{"virtio", false}, {"virtio", true}, {"sata", false}, {"scsi", false}} {
		t.Run(c.bus, func(t *testing.T) {
			dir := t.TempDir()
			image := append(bootSector(), make([]byte, 1<<20-512)...)
			empty, root := filepath.Join(dir, "empty"), filepath.Join(dir, "root")
			for path, b := range map[string][]byte{empty: make([]byte, 1<<20), root: image} {
				if err := os.WriteFile(path, b, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			m, err := qemu.Start(t.Context(), qemu.Config{Name: "disk", Dir: dir, Memory: 64, Disks: []qemu.Disk{
				{Name: "empty", File: empty, Format: "raw", Bus: c.bus, BootOrder: 2},
				{Name: "root", File: root, Format: "raw", Bus: c.bus, BootOrder: 1, Ephemeral: c.forget, Serial: "a,b"},
			}})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Kill()
			console, err := qemu.OpenConsole(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			defer console.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()
			if _, err := console.Await(ctx, bootSaid); err != nil {
				t.Fatalf("%v: %s", err, console.Log())
			}
			m.Kill()
			b, err := os.ReadFile(root)
			if err != nil {
				t.Fatal(err)
			}
			if written := bytes.Equal(b[512:1024], b[:512]); written == c.forget {
				t.Errorf("the disk is written: %t", written)
			}
		})
	}
}

// TestBadDisks: an invalid disk is an error before QEMU is started.
func TestBadDisks(t *testing.T) {
	many := make([]qemu.Disk, 7)
	for i := range many {
		many[i] = qemu.Disk{Name: "a", File: "/dev/null", Format: "raw", Bus: "sata"}
	}
	for want, disks := range map[string][]qemu.Disk{
		"disk a: open /nowhere: no such file or directory": {{Name: "a", File: "/nowhere", Format: "raw", Bus: "sata"}},
		`disk a: bus "usb" is not known`:                   {{Name: "a", File: "/dev/null", Format: "raw", Bus: "usb"}},
		"disk a: more than 6 disks on sata":                many,
	} {
		_, err := qemu.Start(t.Context(), qemu.Config{Name: "x", Dir: t.TempDir(), Disks: disks})
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
