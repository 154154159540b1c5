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

// TestRefused: images that are not one name in several architectures.
func TestRefused(t *testing.T) {
	other := small()
	other.Name, other.Arch = "example.org/other:v1", "arm64"
	for want, images := range map[string][]Image{
		"image: an archive without an image":                                                      nil,
		"image: duplicate architecture amd64":                                                     {small(), small()},
		"image: example.org/weft:v1 and example.org/other:v1 are in one archive: it has one name": {small(), other},
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
