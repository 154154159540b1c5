// SPDX-License-Identifier: Apache-2.0

// Command image writes the images of KubeVirt's components for the test cluster, as one archive: one file system under
// five names, of Debian's packages and of programs that were built from KubeVirt's source.
//
//	go run ./test/kube/kubevirt/image -base FILE -programs DIR -parts DIR -tag TAG -o FILE
//
// -base is a tar of Debian's packages whose maintainer scripts did not run; what KubeVirt needs of their work is added.
package main

import (
	"archive/tar"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/oci"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// registry begins the names of the images; nothing is there.
const registry = "localhost/kubevirt/"

// users returns the components with the users of their images. KubeVirt's manifests say runAsNonRoot without a number.
func users() map[string]string {
	return map[string]string{
		"virt-operator": "1001", "virt-api": "1001", "virt-controller": "1001", "virt-exportproxy": "1001",
		"virt-handler": "0", "virt-launcher": "107",
	}
}

func run() error {
	base := flag.String("base", "", "a tar `FILE` with Debian's packages")
	programs := flag.String("programs", "", "`DIR` of KubeVirt's programs")
	parts := flag.String("parts", "", "`DIR` of files of KubeVirt's source")
	tag := flag.String("tag", "", "the images' `TAG`")
	out := flag.String("o", "", "the archive's `FILE`")
	flag.Parse()

	work, err := os.MkdirTemp(filepath.Dir(*out), ".image")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	var layers []oci.Layer
	for i, write := range []func(*tar.Writer) error{
		func(w *tar.Writer) error { return filter(w, *base) },
		func(w *tar.Writer) error { return add(w, *programs, *parts) },
	} {
		l, err := layer(filepath.Join(work, fmt.Sprint(i)), write)
		if err != nil {
			return err
		}
		layers = append(layers, l)
	}
	var images []oci.Image
	for name, user := range users() {
		images = append(images, oci.Image{
			Name: registry + name + ":" + *tag, Arch: runtime.GOARCH, Created: time.Unix(0, 0), User: user,
			Entrypoint: []string{"/usr/bin/" + name}, Base: layers, ByDigest: true,
			Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		})
	}
	// The pods of KubeVirt's functional tests have a shell and netcat.
	images = append(images, oci.Image{
		Name: registry + "vm-killer:" + *tag, Arch: runtime.GOARCH, Created: time.Unix(0, 0), User: "1001", Entrypoint: []string{"/bin/bash"},
		Base: layers, ByDigest: true, Env: images[0].Env,
	})
	slices.SortFunc(images, func(a, b oci.Image) int { return strings.Compare(a.Name, b.Name) })
	w, err := os.Create(*out)
	if err != nil {
		return err
	}
	return errors.Join(oci.Write(w, images...), w.Close())
}

// layer writes a layer to a file.
func layer(file string, write func(*tar.Writer) error) (oci.Layer, error) {
	f, err := os.Create(file)
	if err != nil {
		return oci.Layer{}, err
	}
	w := tar.NewWriter(f)
	if err := errors.Join(write(w), w.Close(), f.Close()); err != nil {
		return oci.Layer{}, err
	}
	return oci.ReadLayer(file)
}

// unneeded are parts of Debian's packages that no program of KubeVirt reads. Devices are the runtime's.
func unneeded() []string {
	return []string{
		"dev/", "usr/include/", "usr/share/bash-completion/", "usr/share/doc/", "usr/share/info/", "usr/share/locale/",
		"usr/share/man/", "var/cache/", "var/lib/apt/", "var/lib/dpkg/", "var/run",
	}
}

// filter copies the packages without what is not needed.
func filter(w *tar.Writer, base string) error {
	f, err := os.Open(base)
	if err != nil {
		return err
	}
	defer f.Close()
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", base, err)
		}
		name := strings.TrimPrefix(h.Name, "./")
		if name == "" || slices.ContainsFunc(unneeded(), func(p string) bool { return strings.HasPrefix(name, p) }) {
			continue
		}
		if err := w.WriteHeader(h); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
		if _, err := io.Copy(w, r); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
}

// qemuUser is the user of a VM, and its group.
const qemuUser = 107

// capNetBindService is the extended attribute of a file with cap_net_bind_service, permitted and effective (struct
// vfs_cap_data of the kernel, version 2). With it virt-launcher starts as a user that is not root.
const capNetBindService = "\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"

// virtqemud stands in for libvirt's daemon of that name, which Debian does not have: the daemon of all drivers has the same
// protocol.
const virtqemud = `#!/bin/sh
mkdir -p /run/libvirt
ln -sfn libvirt-sock /run/libvirt/virtqemud-sock
exec /usr/sbin/libvirtd "$@"
`

const passwd = `root:x:0:0:root:/root:/bin/bash
qemu:x:107:107:qemu:/home/qemu:/bin/bash
libvirt-qemu:x:107:107:qemu:/home/qemu:/bin/bash
`

const group = `root:x:0:
qemu:x:107:
libvirt-qemu:x:107:
libvirt:x:108:
kvm:x:109:
`

// add writes KubeVirt's own files, as its build puts them into its images, and the users.
func add(w *tar.Writer, programs, parts string) error {
	hooks := tar.Header{Name: "etc/libvirt/hooks/", Typeflag: tar.TypeDir, Mode: 0o755, Uid: qemuUser, Gid: qemuUser}
	home := tar.Header{Name: "home/qemu/", Typeflag: tar.TypeDir, Mode: 0o755, Uid: qemuUser, Gid: qemuUser}
	// virt-handler follows it from outside of the container, so it must be relative.
	run := tar.Header{Name: "var/run", Typeflag: tar.TypeSymlink, Linkname: "../run", Mode: 0o777}
	nc := tar.Header{Name: "usr/bin/nc", Typeflag: tar.TypeSymlink, Linkname: "ncat", Mode: 0o777}
	for _, h := range []tar.Header{hooks, home, run, nc} {
		if err := w.WriteHeader(&h); err != nil {
			return err
		}
	}
	hook := tar.Header{Name: "etc/libvirt/hooks/qemu", Mode: 0o755, Uid: qemuUser, Gid: qemuUser}
	files := map[string]tar.Header{
		"qemu":             hook,
		"qemu.conf":        {Name: "etc/libvirt/qemu.conf", Mode: 0o644},
		"virtqemud.conf":   {Name: "etc/libvirt/virtqemud.conf", Mode: 0o644},
		"nsswitch.conf":    {Name: "etc/nsswitch.conf", Mode: 0o644},
		"node-labeller.sh": {Name: "usr/bin/node-labeller.sh", Mode: 0o755},
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := copyFile(w, filepath.Join(parts, name), files[name]); err != nil {
			return err
		}
	}
	all, err := os.ReadDir(programs)
	if err != nil {
		return err
	}
	for _, p := range all {
		h := tar.Header{Name: path.Join("usr/bin", p.Name()), Mode: 0o755}
		switch p.Name() {
		case "virtctl": // for users
			continue
		case "virt-launcher-monitor":
			h.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": capNetBindService}
		}
		if err := copyFile(w, filepath.Join(programs, p.Name()), h); err != nil {
			return err
		}
	}
	return errors.Join(
		write(w, tar.Header{Name: "etc/passwd", Mode: 0o644}, []byte(passwd)),
		write(w, tar.Header{Name: "etc/group", Mode: 0o644}, []byte(group)),
		write(w, tar.Header{Name: "usr/sbin/virtqemud", Mode: 0o755}, []byte(virtqemud)),
	)
}

func copyFile(w *tar.Writer, file string, h tar.Header) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return write(w, h, b)
}

func write(w *tar.Writer, h tar.Header, content []byte) error {
	h.Typeflag, h.Size = tar.TypeReg, int64(len(content))
	if err := w.WriteHeader(&h); err != nil {
		return fmt.Errorf("%s: %w", h.Name, err)
	}
	_, err := w.Write(content)
	return err
}
