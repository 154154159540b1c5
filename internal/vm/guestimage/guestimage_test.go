// SPDX-License-Identifier: Apache-2.0

package guestimage

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/oci"
)

// TestArchive: cpio reads the archive, and it is reproducible.
func TestArchive(t *testing.T) {
	a := archive{
		dir("bin"), program("bin/x", []byte("hello")), entry{name: "odd", mode: modeFile | 0o644, data: []byte("12345")},
	}
	var one, two bytes.Buffer
	if err := a.write(&one); err != nil {
		t.Fatal(err)
	}
	if err := a.write(&two); err != nil || !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Errorf("two writes of one tree differ: %v", err)
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		nettest.Skip(t, "no busybox to read it with")
	}
	to := t.TempDir()
	cmd := exec.Command(busybox, "cpio", "-i")
	cmd.Dir, cmd.Stdin = to, &one
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got, err := os.ReadFile(filepath.Join(to, "bin", "x"))
	if err != nil || string(got) != "hello" {
		t.Errorf("%q %v", got, err)
	}
	got, err = os.ReadFile(filepath.Join(to, "odd"))
	if err != nil || string(got) != "12345" {
		t.Errorf("%q %v", got, err)
	}
}

// TestOrder: dependencies of a driver are loaded before it, and modules that no driver needs are skipped.
func TestOrder(t *testing.T) {
	all := map[string]module{
		"virtio_net":   {name: "virtio_net.ko", depends: []string{"net_failover", "built_in"}},
		"net_failover": {name: "net_failover.ko", depends: []string{"failover"}},
		"failover":     {name: "failover.ko"}, "other": {name: "other.ko"},
		"virtio_pci": {name: "virtio_pci.ko", depends: []string{"virtio_pci"}},
	}
	var got []string
	for _, m := range loadOrder(all) {
		got = append(got, m.name)
	}
	if d := cmp.Diff([]string{"virtio_pci.ko", "failover.ko", "net_failover.ko", "virtio_net.ko"}, got); d != "" {
		t.Error(d)
	}
}

// TestNoBusybox: an unsuitable busybox is an error with a hint.
func TestNoBusybox(t *testing.T) {
	_, err := Config{Busybox: "/nowhere/busybox"}.tree(t.TempDir())
	if err == nil || !strings.HasPrefix(err.Error(), `busybox "/nowhere/busybox": `) {
		t.Errorf("%v", err)
	}
	if _, err = (Config{Busybox: "/etc/passwd"}).tree(t.TempDir()); err == nil ||
		!strings.Contains(err.Error(), "bad magic number") {
		t.Errorf("%v", err)
	}
}

// TestOCI: the container image has the kernel and the initrd where KubeVirt's VMs are shown to look for them.
func TestOCI(t *testing.T) {
	at := t.TempDir()
	i := Image{Kernel: filepath.Join(at, "k"), Initrd: filepath.Join(at, "i")}
	if _, err := i.OCI("localhost/guest:v1"); err == nil {
		t.Error("an image of files that do not exist")
	}
	for _, file := range []string{i.Kernel, i.Initrd} {
		if err := os.WriteFile(file, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	image, err := i.OCI("localhost/guest:v1")
	if err != nil {
		t.Fatal(err)
	}
	want := []oci.File{
		{Path: "/boot/vmlinuz", Mode: 0o644, Content: []byte(i.Kernel)}, {Path: "/boot/initrd", Mode: 0o644, Content: []byte(i.Initrd)},
	}
	if d := cmp.Diff(want, image.Files, cmpopts.IgnoreUnexported(oci.File{})); d != "" || image.Name != "localhost/guest:v1" || !image.ByDigest {
		t.Errorf("%+v %s", image, d)
	}
}
