// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/vm/manifest"
	"github.com/weft-net/weft/internal/vm/qemu"
)

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestOpen: existing files are used, the VM's own are created, and volumes elsewhere are skipped with a note.
func TestOpen(t *testing.T) {
	dir, node := t.TempDir(), t.TempDir()
	raw, image := write(t, filepath.Join(node, "raw"), "raw"), write(t, filepath.Join(node, "image"), "QFI\xfb...")
	made := filepath.Join(node, "made")
	var notes []string
	c := Config{
		Dir: dir, Files: map[string]string{"root": image, "claim": image}, Note: func(s string) { notes = append(notes, s) },
	}
	all := []manifest.Disk{
		{Name: "root", Kind: manifest.ContainerDisk, Bus: "virtio", Serial: "s"},
		{Name: "claim", Kind: "persistentVolumeClaim", Bus: "sata"}, // the guest may have written to it
		{Name: "there", Kind: manifest.HostDisk, File: raw, Create: true, Size: 1 << 20},
		{Name: "made", Kind: manifest.HostDisk, File: made, Create: true, Size: 1 << 20, ReadOnly: true},
		{Name: "empty", Kind: manifest.EmptyDisk, Size: 2 << 20},
		{Name: "else", Kind: "dataVolume"},
		{Name: "secret", Kind: manifest.CloudInit},
	}
	got, err := c.Open(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	want := []qemu.Disk{
		{Name: "root", File: image, Format: "qcow2", Bus: "virtio", Ephemeral: true, BootOrder: 1, Serial: "s"},
		{Name: "claim", File: image, Format: "raw", Bus: "sata", BootOrder: 2},
		{Name: "there", File: raw, Format: "raw", BootOrder: 3},
		{Name: "made", File: made, Format: "raw", ReadOnly: true, BootOrder: 4},
		{Name: "empty", File: filepath.Join(dir, "disk-empty"), Format: "raw", BootOrder: 5},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for path, size := range map[string]int64{raw: 3, made: 1 << 20, filepath.Join(dir, "disk-empty"): 2 << 20} {
		if st, err := os.Stat(path); err != nil || st.Size() != size {
			t.Errorf("%s: %v %v", path, st, err)
		}
	}
	if d := cmp.Diff([]string{
		"disk else (dataVolume) is skipped: it is not on this node; set its file with --disk else=FILE",
		"disk secret is skipped: its data is in a Secret of the cluster; set userData in the manifest",
	}, notes); d != "" {
		t.Error(d)
	}
}

// TestBootable: a VM boots from disks that may have an operating system.
func TestBootable(t *testing.T) {
	c := Config{Files: map[string]string{"file": "x"}}
	for d, want := range map[manifest.Disk]bool{
		{Name: "file", Kind: "dataVolume"}:        true,
		{Name: "a", Kind: manifest.HostDisk}:      true,
		{Name: "b", Kind: manifest.EmptyDisk}:     false,
		{Name: "c", Kind: manifest.CloudInit}:     false,
		{Name: "d", Kind: manifest.ContainerDisk}: false,
	} {
		if got := c.Bootable([]manifest.Disk{d}); got != want {
			t.Errorf("%s: %t", d.Name, got)
		}
	}
}

// TestBadDisks: a missing file is an error with the disk's path in the manifest.
func TestBadDisks(t *testing.T) {
	dir := t.TempDir()
	for want, d := range map[string]manifest.Disk{
		"disks[0]: stat /nowhere: no such file or directory":   {At: "disks[0]", Kind: manifest.HostDisk, File: "/nowhere"},
		"disks[1]: " + dir + " is neither a file nor a device": {At: "disks[1]", Kind: manifest.HostDisk, File: dir},
		"disks[2]: open /nowhere/x: no such file or directory": {
			At: "disks[2]", Kind: manifest.HostDisk, File: "/nowhere/x", Create: true, Size: 1,
		},
	} {
		if _, err := (Config{Dir: dir}).Open(t.Context(), []manifest.Disk{d}); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	_, err := Config{Dir: dir, Files: map[string]string{"x": "y"}}.Open(t.Context(), nil)
	if err == nil || !strings.HasPrefix(err.Error(), "--disk x: the VM has no disk of that name") {
		t.Error(err)
	}
}

// TestSeed: the ISO file system has the label and the files of cloud-init.
func TestSeed(t *testing.T) {
	if _, err := exec.LookPath("xorriso"); err != nil {
		nettest.SkipMissing(t, "no xorriso")
	}
	dir := t.TempDir()
	d := manifest.Disk{
		Name: "seed", Kind: manifest.CloudInit, Bus: "sata",
		Seed: &manifest.Seed{Label: "cidata", Files: map[string]string{
			"user-data": "#cloud-config\n", "openstack/latest/meta_data.json": "{}",
		}},
	}
	got, err := Config{Dir: dir}.Open(t.Context(), []manifest.Disk{d})
	if err != nil || len(got) != 1 || !got[0].ReadOnly {
		t.Fatalf("%+v %v", got, err)
	}
	out, err := exec.Command("xorriso", "-indev", got[0].File, "-pvd_info", "-find", "/", "-type", "f").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"Volume Id    : cidata", "'/user-data'", "'/openstack/latest/meta_data.json'"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %s in:\n%s", want, out)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "seed*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
