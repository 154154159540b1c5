// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func small() Image {
	return Image{
		Name: "example.org/weft:v1", Arch: "amd64", Created: time.Unix(1_700_000_000, 123),
		Entrypoint: []string{"/usr/bin/weft"}, Labels: map[string]string{"b": "2", "a": "1"},
		Files: []File{
			{Path: "/usr/bin/weft", Mode: 0o755, Content: []byte("program")},
			{Path: "/usr/bin/loopback", Link: "weft-plugin"},
			{Path: "/LICENSE", Mode: 0o644, Content: []byte("free")},
		},
	}
}

// unpack reads a tar: one line for each entry, and the content of files.
func unpack(t *testing.T, r io.Reader) (lines []string, content map[string][]byte) {
	t.Helper()
	content = map[string][]byte{}
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return lines, content
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		content[h.Name] = b
		line := fmt.Sprintf("%c %o %d:%d %d %s", h.Typeflag, h.Mode, h.Uid, h.Gid, h.ModTime.Unix(), h.Name)
		if h.Linkname != "" {
			line += " -> " + h.Linkname
		}
		lines = append(lines, line+h.Uname+h.Gname)
	}
}

// blobsOf returns a reader of an archive's documents, which fails on a blob that does not have its digest.
func blobsOf(t *testing.T, archive []byte) (root index, read func(d descriptor, v any) []byte) {
	t.Helper()
	_, blobs := unpack(t, bytes.NewReader(archive))
	if err := json.Unmarshal(blobs["index.json"], &root); err != nil {
		t.Fatal(err)
	}
	return root, func(d descriptor, v any) []byte {
		t.Helper()
		b := blobs["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")]
		if len(b) != d.Size || digest(b) != d.Digest {
			t.Fatalf("blob %s: %d bytes, want %d", d.Digest, len(b), d.Size)
		}
		if v != nil {
			if err := json.Unmarshal(b, v); err != nil {
				t.Fatal(err)
			}
		}
		return b
	}
}

// TestImage follows the digests from the name to the files of each architecture, as a runtime does.
func TestImage(t *testing.T) {
	other := small()
	other.Arch = "arm64"
	other.Files[0].Content = []byte("another program")
	var out bytes.Buffer
	if err := Write(&out, small(), other); err != nil {
		t.Fatal(err)
	}
	root, read := blobsOf(t, out.Bytes())
	want := map[string]string{"org.opencontainers.image.ref.name": "v1", "io.containerd.image.name": "example.org/weft:v1"}
	if diff := cmp.Diff(want, root.Manifests[0].Annotations); diff != "" || len(root.Manifests) != 1 {
		t.Errorf("%+v %s", root, diff)
	}
	var all index
	read(root.Manifests[0], &all)
	if len(all.Manifests) != 2 {
		t.Fatalf("%+v", all)
	}
	for n, program := range []string{"program", "another program"} {
		top, on := all.Manifests[n], platform{[]string{"amd64", "arm64"}[n], "linux"}
		var man manifest
		read(top, &man)
		var conf configuration
		read(man.Config, &conf)
		if *top.Platform != on || conf.platform != on {
			t.Errorf("%+v %+v, want %v", top, conf, on)
		}
		z, err := gzip.NewReader(bytes.NewReader(read(man.Layers[0], nil)))
		if err != nil {
			t.Fatal(err)
		}
		plain, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(conf.RootFS.DiffIDs, []string{digest(plain)}) ||
			!slices.Equal(conf.Config.Entrypoint, []string{"/usr/bin/weft"}) {
			t.Errorf("%+v", conf)
		}
		lines, files := unpack(t, bytes.NewReader(plain))
		layer := []string{
			"0 644 0:0 1700000000 LICENSE",
			"5 755 0:0 1700000000 usr/",
			"5 755 0:0 1700000000 usr/bin/",
			"2 777 0:0 1700000000 usr/bin/loopback -> weft-plugin",
			"0 755 0:0 1700000000 usr/bin/weft",
		}
		if diff := cmp.Diff(layer, lines); diff != "" || string(files["usr/bin/weft"]) != program {
			t.Errorf("%s: %q", diff, files["usr/bin/weft"])
		}
	}
}

// TestEqualLayers: what two architectures have in common is in the archive once.
func TestEqualLayers(t *testing.T) {
	other := small()
	other.Arch = "arm64"
	var out bytes.Buffer
	if err := Write(&out, small(), other); err != nil {
		t.Fatal(err)
	}
	// index.json, oci-layout, two directories, the index, and two manifests and configurations with one layer.
	if lines, _ := unpack(t, &out); len(lines) != 10 {
		t.Errorf("%d entries: %q", len(lines), lines)
	}
}

// TestRefused: nothing, and two images for one name and architecture.
func TestRefused(t *testing.T) {
	other := small()
	other.Arch = "arm64"
	for want, images := range map[string][]Image{
		"image: an archive without an image":                         nil,
		"image: duplicate architecture amd64 of example.org/weft:v1": {small(), other, small()},
	} {
		if err := Write(io.Discard, images...); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestReproducible: neither the order of the files nor the zone of the clock changes a byte.
func TestReproducible(t *testing.T) {
	other := small()
	other.Arch = "arm64"
	var first bytes.Buffer
	if err := Write(&first, small(), other); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		i := small()
		slices.Reverse(i.Files)
		i.Created = i.Created.In(time.FixedZone("far", 3600))
		var again bytes.Buffer
		if err := Write(&again, i, other); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first.Bytes(), again.Bytes()) {
			t.Fatal("the bytes differ")
		}
	}
}

// TestNames: several names share the layers of files, and each has its own user; one is also found by its digest.
func TestNames(t *testing.T) {
	file := filepath.Join(t.TempDir(), "base.tar")
	base := bytes.Repeat([]byte("tar"), 1000)
	if err := os.WriteFile(file, base, 0o600); err != nil {
		t.Fatal(err)
	}
	layer, err := ReadLayer(file)
	if err != nil {
		t.Fatal(err)
	}
	first := Image{Name: "localhost:5000/a:v1", Arch: "amd64", User: "107", Base: []Layer{layer}, ByDigest: true}
	second := small()
	second.Base = []Layer{layer}
	var out bytes.Buffer
	if err := Write(&out, first, second); err != nil {
		t.Fatal(err)
	}
	root, read := blobsOf(t, out.Bytes())
	var names, users []string
	for _, top := range root.Manifests {
		var all index
		var man manifest
		var conf configuration
		read(top, &all)
		read(all.Manifests[0], &man)
		read(man.Config, &conf)
		names, users = append(names, top.Annotations["io.containerd.image.name"]), append(users, conf.Config.User)
		if l := man.Layers[0]; l.MediaType != typePlain || conf.RootFS.DiffIDs[0] != l.Digest || !bytes.Equal(read(l, nil), base) {
			t.Errorf("%s: %+v", top.Annotations, man.Layers)
		}
		if len(man.Layers) != len(conf.RootFS.DiffIDs) {
			t.Errorf("%d layers, %d in the configuration", len(man.Layers), len(conf.RootFS.DiffIDs))
		}
	}
	want := []string{"localhost:5000/a:v1", "localhost:5000/a@" + root.Manifests[0].Digest, "example.org/weft:v1"}
	if diff := cmp.Diff(want, names) + cmp.Diff([]string{"107", "107", ""}, users); diff != "" {
		t.Error(diff)
	}
	// index.json, oci-layout, two directories, a layer of the file and one of files, two configurations, manifests, indexes.
	if lines, _ := unpack(t, &out); len(lines) != 12 {
		t.Errorf("%d entries: %q", len(lines), lines)
	}
}

func TestBadFiles(t *testing.T) {
	for want, files := range map[string][]File{
		`image: "weft" is not a clean absolute path of a file`:    {{Path: "weft"}},
		`image: "/a/../b" is not a clean absolute path of a file`: {{Path: "/a/../b"}},
		`image: "/" is not a clean absolute path of a file`:       {{Path: "/"}},
		"image: duplicate file /a":                                {{Path: "/a"}, {Path: "/a"}},
		"image: /a is a file, but /a/b is below it":               {{Path: "/a"}, {Path: "/a/b"}},
	} {
		i := small()
		i.Files = files
		if err := Write(io.Discard, i); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
