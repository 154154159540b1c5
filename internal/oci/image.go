// SPDX-License-Identifier: Apache-2.0

// Package oci builds a container image from files, without Docker, a registry or a base image, for one architecture or
// several. It writes an OCI image layout as a tar archive, for `ctr images import`, `podman load` and `skopeo copy
// oci-archive:`.
//
// Images are reproducible: the same files, names and time give the same bytes. Entries are sorted, owners and times are
// fixed, and nothing depends on the build host.
package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// Media types of the OCI image specification.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
	typePlain    = "application/vnd.oci.image.layer.v1.tar"
)

// File is a file of the image, or a symbolic link when Link is set.
type File struct {
	Path    string // absolute
	Mode    int64
	Content []byte
	Link    string

	layer *Layer // in place of Content
}

// Layer is a layer of an image that is a file of the host: an uncompressed tar.
type Layer struct {
	path, digest string
	size         int64
}

// ReadLayer returns the layer in a file, which must stay as it is until images with it are written.
func ReadLayer(path string) (Layer, error) {
	f, err := os.Open(path)
	if err != nil {
		return Layer{}, fmt.Errorf("image: layer: %w", err)
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	n, err := io.Copy(sum, f)
	if err != nil {
		return Layer{}, fmt.Errorf("image: layer: %w", err)
	}
	return Layer{path: path, digest: "sha256:" + hex.EncodeToString(sum.Sum(nil)), size: n}, nil
}

// copyTo writes the layer's tar.
func (l Layer) copyTo(w io.Writer) error {
	f, err := os.Open(l.path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	_, err = io.Copy(w, f)
	return err
}

// Image describes an image for one architecture.
type Image struct {
	// Name is the image reference with its tag.
	Name       string
	Arch       string // as GOARCH
	Created    time.Time
	Entrypoint []string
	Cmd        []string // default arguments of the entrypoint
	Env        []string
	Labels     map[string]string
	// User is the user of the entrypoint; empty: root.
	User string
	// Base are the layers below Files, the lowest first. Without Files the image has no further layer.
	Base  []Layer
	Files []File
	// ByDigest also names the image by its digest. Then a runtime that has loaded the archive finds it by digest, and
	// asks no registry.
	ByDigest bool
}

// descriptor refers to a blob by its digest.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        descriptor   `json:"config"`
	Layers        []descriptor `json:"layers"`
}

type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []descriptor `json:"manifests"`
}

type configuration struct {
	Created time.Time `json:"created"`
	platform
	Config  execution `json:"config"`
	RootFS  rootFS    `json:"rootfs"`
	History []history `json:"history"`
}

type execution struct {
	User       string            `json:"User,omitempty"`
	Env        []string          `json:"Env,omitempty"`
	Entrypoint []string          `json:"Entrypoint,omitempty"`
	Cmd        []string          `json:"Cmd,omitempty"`
	Labels     map[string]string `json:"Labels,omitempty"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

type history struct {
	Created   time.Time `json:"created"`
	CreatedBy string    `json:"created_by"`
}

// Write writes images as a tar archive: each name refers to an index, which has one image for each architecture. A runtime
// takes the one of its node.
func Write(w io.Writer, images ...Image) error {
	if len(images) == 0 {
		return errors.New("image: an archive without an image")
	}
	all := blobs{} // by digest: equal layers are stored once
	root := index{SchemaVersion: 2, MediaType: typeIndex}
	var names []string
	for _, i := range images {
		if slices.Contains(names, i.Name) {
			continue
		}
		names = append(names, i.Name)
		entries, err := all.addNamed(i.Name, images)
		if err != nil {
			return err
		}
		root.Manifests = append(root.Manifests, entries...)
	}
	entry, err := json.Marshal(root)
	if err != nil {
		return err
	}
	files := []File{
		{Path: "/oci-layout", Mode: 0o644, Content: []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{Path: "/index.json", Mode: 0o644, Content: entry},
	}
	for digest, blob := range all {
		blob.Path, blob.Mode = "/blobs/sha256/"+strings.TrimPrefix(digest, "sha256:"), 0o644
		files = append(files, blob)
	}
	return archive(w, files, images[0].created())
}

// blobs are the contents of an archive by their digests.
type blobs map[string]File

// addNamed adds the images of a name with their index, and returns the entries by which it is found.
func (b blobs) addNamed(name string, images []Image) ([]descriptor, error) {
	all := index{SchemaVersion: 2, MediaType: typeIndex}
	byDigest := false
	for _, i := range images {
		if i.Name != name {
			continue
		}
		if slices.ContainsFunc(all.Manifests, func(d descriptor) bool { return d.Platform.Architecture == i.Arch }) {
			return nil, fmt.Errorf("image: duplicate architecture %s of %s", i.Arch, name)
		}
		d, err := i.build(b)
		if err != nil {
			return nil, err
		}
		all.Manifests, byDigest = append(all.Manifests, d), byDigest || i.ByDigest
	}
	top, err := b.add(typeIndex, all)
	if err != nil {
		return nil, err
	}
	repository, tag := name, ""
	if at := strings.LastIndex(name, ":"); at > strings.LastIndex(name, "/") {
		repository, tag = name[:at], name[at+1:]
	}
	// The first key is from the specification; containerd reads the full name from the second.
	top.Annotations = map[string]string{"org.opencontainers.image.ref.name": tag, "io.containerd.image.name": name}
	out := []descriptor{top}
	if byDigest {
		top.Annotations = map[string]string{"io.containerd.image.name": repository + "@" + top.Digest}
		out = append(out, top)
	}
	return out, nil
}

// created returns the image's time in whole seconds of UTC, as archives have it.
func (i Image) created() time.Time { return i.Created.UTC().Truncate(time.Second) }

// build adds the image's layers, configuration and manifest, and describes the manifest.
func (i Image) build(all blobs) (descriptor, error) {
	var layers []descriptor
	var diffs []string
	for _, l := range i.Base {
		all[l.digest] = File{layer: &l}
		layers = append(layers, descriptor{MediaType: typePlain, Digest: l.digest, Size: int(l.size)})
		diffs = append(diffs, l.digest)
	}
	if len(i.Files) > 0 || len(i.Base) == 0 {
		plain, packed, err := i.layer()
		if err != nil {
			return descriptor{}, err
		}
		layer := describe(typeLayer, packed)
		all[layer.Digest] = File{Content: packed}
		layers, diffs = append(layers, layer), append(diffs, digest(plain))
	}
	on := platform{i.Arch, "linux"}
	conf, err := all.add(typeConfig, configuration{
		Created: i.created(), platform: on,
		Config:  execution{User: i.User, Env: i.Env, Entrypoint: i.Entrypoint, Cmd: i.Cmd, Labels: i.Labels},
		RootFS:  rootFS{"layers", diffs},
		History: []history{{i.created(), "weft: make image"}},
	})
	if err != nil {
		return descriptor{}, err
	}
	man, err := all.add(typeManifest, manifest{2, typeManifest, conf, layers})
	if err != nil {
		return descriptor{}, err
	}
	man.Platform = &on
	return man, nil
}

// add adds a document, and describes it.
func (b blobs) add(mediaType string, document any) (descriptor, error) {
	text, err := json.Marshal(document)
	if err != nil {
		return descriptor{}, err
	}
	d := describe(mediaType, text)
	b[d.Digest] = File{Content: text}
	return d, nil
}

// layer returns the layer of the image's files, as a plain and as a compressed tar.
func (i Image) layer() (plain, packed []byte, err error) {
	var tarred, zipped bytes.Buffer
	if err := archive(&tarred, i.Files, i.created()); err != nil {
		return nil, nil, err
	}
	z := gzip.NewWriter(&zipped) // the default header has no name and no time
	if _, err := z.Write(tarred.Bytes()); err != nil {
		return nil, nil, err
	}
	if err := z.Close(); err != nil {
		return nil, nil, err
	}
	return tarred.Bytes(), zipped.Bytes(), nil
}

// archive writes files and their parent directories as a tar.
func archive(w io.Writer, files []File, at time.Time) error {
	all := map[string]File{}
	for _, f := range files {
		name := path.Clean(f.Path)
		if !path.IsAbs(f.Path) || name == "/" || name != f.Path {
			return fmt.Errorf("image: %q is not a clean absolute path of a file", f.Path)
		}
		if _, twice := all[name]; twice {
			return fmt.Errorf("image: duplicate file %s", name)
		}
		all[name] = f
	}
	dirs := map[string]bool{}
	var names []string
	for name := range all {
		names = append(names, name)
		for dir := path.Dir(name); dir != "/" && !dirs[dir]; dir = path.Dir(dir) {
			if _, file := all[dir]; file {
				return fmt.Errorf("image: %s is a file, but %s is below it", dir, name)
			}
			dirs[dir] = true
			names = append(names, dir)
		}
	}
	slices.Sort(names)
	t := tar.NewWriter(w)
	for _, name := range names {
		h := &tar.Header{Name: name[1:], ModTime: at, Format: tar.FormatUSTAR}
		f := all[name]
		switch {
		case dirs[name]:
			h.Typeflag, h.Name, h.Mode = tar.TypeDir, h.Name+"/", 0o755
		case f.Link != "":
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.Link, 0o777
		case f.layer != nil:
			h.Typeflag, h.Mode, h.Size = tar.TypeReg, f.Mode, f.layer.size
		default:
			h.Typeflag, h.Mode, h.Size = tar.TypeReg, f.Mode, int64(len(f.Content))
		}
		if err := t.WriteHeader(h); err != nil {
			return fmt.Errorf("image: %s: %w", name, err)
		}
		var err error
		switch {
		case f.layer != nil:
			err = f.layer.copyTo(t)
		case h.Typeflag == tar.TypeReg:
			_, err = t.Write(f.Content)
		}
		if err != nil {
			return fmt.Errorf("image: %s: %w", name, err)
		}
	}
	return t.Close()
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func describe(mediaType string, b []byte) descriptor {
	return descriptor{MediaType: mediaType, Digest: digest(b), Size: len(b)}
}
