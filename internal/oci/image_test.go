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

// TestImage follows the digests from the index to the files, as a runtime does.
func TestImage(t *testing.T) {
	var out bytes.Buffer
	if err := small().Write(&out); err != nil {
		t.Fatal(err)
	}
	_, blobs := unpack(t, bytes.NewReader(out.Bytes()))
	blob := func(d descriptor) []byte {
		b := blobs["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")]
		if len(b) != d.Size || digest(b) != d.Digest {
			t.Fatalf("blob %s: %d bytes, want %d", d.Digest, len(b), d.Size)
		}
		return b
	}
	read := func(b []byte, v any) {
		if err := json.Unmarshal(b, v); err != nil {
			t.Fatal(err)
		}
	}
	var idx index
	read(blobs["index.json"], &idx)
	top := idx.Manifests[0]
	want := map[string]string{"org.opencontainers.image.ref.name": "v1", "io.containerd.image.name": "example.org/weft:v1"}
	if diff := cmp.Diff(want, top.Annotations); diff != "" || *top.Platform != (platform{"amd64", "linux"}) {
		t.Errorf("%+v %s", top, diff)
	}
	var man manifest
	read(blob(top), &man)
	var conf configuration
	read(blob(man.Config), &conf)
	z, err := gzip.NewReader(bytes.NewReader(blob(man.Layers[0])))
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
	if diff := cmp.Diff(layer, lines); diff != "" || string(files["usr/bin/weft"]) != "program" {
		t.Error(diff)
	}
}

// TestReproducible: neither the order of the files nor the zone of the clock changes a byte.
func TestReproducible(t *testing.T) {
	var first bytes.Buffer
	if err := small().Write(&first); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		i := small()
		slices.Reverse(i.Files)
		i.Created = i.Created.In(time.FixedZone("far", 3600))
		var again bytes.Buffer
		if err := i.Write(&again); err != nil {
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
		if err := i.Write(io.Discard); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
