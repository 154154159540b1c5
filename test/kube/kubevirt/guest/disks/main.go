// SPDX-License-Identifier: Apache-2.0

// Command disks writes images with a disk each, as KubeVirt's containerDisk expects it, as one archive.
//
//	go run ./test/kube/kubevirt/guest/disks -tag TAG -o FILE NAME=DISK...
package main

import (
	"archive/tar"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/oci"
)

func main() {
	tag := flag.String("tag", "", "the images' `TAG`")
	out := flag.String("o", "", "the archive's `FILE`")
	flag.Parse()
	if err := run(*tag, *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "disks:", err)
		os.Exit(1)
	}
}

// qemuUser is the user of a VM, who reads the disk.
const qemuUser = 107

func run(tag, out string, pairs []string) error {
	work, err := os.MkdirTemp(filepath.Dir(out), ".disks")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	layers := map[string]oci.Layer{}
	var images []oci.Image
	for i, pair := range pairs {
		name, disk, ok := strings.Cut(pair, "=")
		if !ok {
			return fmt.Errorf("argument %q: want NAME=DISK", pair)
		}
		if _, ok := layers[disk]; !ok {
			if layers[disk], err = layer(filepath.Join(work, fmt.Sprint(i)), disk); err != nil {
				return err
			}
		}
		images = append(images, oci.Image{
			Name: "localhost/kubevirt/" + name + ":" + tag, Arch: runtime.GOARCH, Created: time.Unix(0, 0), User: fmt.Sprint(qemuUser),
			Base: []oci.Layer{layers[disk]}, ByDigest: true, Labels: map[string]string{"org.opencontainers.image.title": name},
		})
	}
	w, err := os.Create(out)
	if err != nil {
		return err
	}
	return errors.Join(oci.Write(w, images...), w.Close())
}

// layer writes a layer with the disk where KubeVirt looks for it.
func layer(file, disk string) (oci.Layer, error) {
	from, err := os.Open(disk)
	if err != nil {
		return oci.Layer{}, err
	}
	defer from.Close()
	st, err := from.Stat()
	if err != nil {
		return oci.Layer{}, err
	}
	to, err := os.Create(file)
	if err != nil {
		return oci.Layer{}, err
	}
	w := tar.NewWriter(to)
	err = errors.Join(
		w.WriteHeader(&tar.Header{Name: "disk/", Typeflag: tar.TypeDir, Mode: 0o755, Uid: qemuUser, Gid: qemuUser}),
		w.WriteHeader(&tar.Header{Name: "disk/disk.img", Typeflag: tar.TypeReg, Mode: 0o444, Uid: qemuUser, Gid: qemuUser, Size: st.Size()}),
	)
	if err == nil {
		_, err = io.Copy(w, from)
	}
	if err := errors.Join(err, w.Close(), to.Close()); err != nil {
		return oci.Layer{}, err
	}
	return oci.ReadLayer(file)
}
