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
)

// File is a file of the image, or a symbolic link when Link is set.
type File struct {
	Path    string // absolute
	Mode    int64
	Content []byte
	Link    string
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
	Files      []File
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

// Write writes images of one name as a tar archive: the name refers to an index, which has one image for each
// architecture. A runtime takes the one of its node.
func Write(w io.Writer, images ...Image) error {
	if len(images) == 0 {
		return errors.New("image: an archive without an image")
	}
	name, created := images[0].Name, images[0].created()
	blobs := map[string][]byte{} // by digest: equal layers are stored once
	all := index{SchemaVersion: 2, MediaType: typeIndex}
	for _, i := range images {
		if i.Name != name {
			return fmt.Errorf("image: %s and %s are in one archive: it has one name", name, i.Name)
		}
		if slices.ContainsFunc(all.Manifests, func(d descriptor) bool { return d.Platform.Architecture == i.Arch }) {
			return fmt.Errorf("image: duplicate architecture %s", i.Arch)
		}
		d, err := i.build(blobs)
		if err != nil {
			return err
		}
		all.Manifests = append(all.Manifests, d)
	}
	top, err := add(blobs, typeIndex, all)
	if err != nil {
		return err
	}
	_, tag, _ := strings.Cut(path.Base(name), ":")
	// The first key is from the specification; containerd reads the full name from the second.
	top.Annotations = map[string]string{"org.opencontainers.image.ref.name": tag, "io.containerd.image.name": name}
	entry, err := json.Marshal(index{2, typeIndex, []descriptor{top}})
	if err != nil {
		return err
	}
	files := []File{
		{Path: "/oci-layout", Mode: 0o644, Content: []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{Path: "/index.json", Mode: 0o644, Content: entry},
	}
	for digest, blob := range blobs {
		files = append(files, File{
			Path: "/blobs/sha256/" + strings.TrimPrefix(digest, "sha256:"), Mode: 0o644, Content: blob,
		})
	}
	return archive(w, files, created)
}

// created returns the image's time in whole seconds of UTC, as archives have it.
func (i Image) created() time.Time { return i.Created.UTC().Truncate(time.Second) }

// build adds the image's layer, configuration and manifest to blobs, and describes the manifest.
func (i Image) build(blobs map[string][]byte) (descriptor, error) {
	plain, packed, err := i.layer()
	if err != nil {
		return descriptor{}, err
	}
	on := platform{i.Arch, "linux"}
	conf, err := add(blobs, typeConfig, configuration{
		Created: i.created(), platform: on,
		Config:  execution{Env: i.Env, Entrypoint: i.Entrypoint, Cmd: i.Cmd, Labels: i.Labels},
		RootFS:  rootFS{"layers", []string{digest(plain)}},
		History: []history{{i.created(), "weft: make image"}},
	})
	if err != nil {
		return descriptor{}, err
	}
	layer := describe(typeLayer, packed)
	blobs[layer.Digest] = packed
	man, err := add(blobs, typeManifest, manifest{2, typeManifest, conf, []descriptor{layer}})
	if err != nil {
		return descriptor{}, err
	}
	man.Platform = &on
	return man, nil
}

// add adds a document to blobs, and describes it.
func add(blobs map[string][]byte, mediaType string, document any) (descriptor, error) {
	b, err := json.Marshal(document)
	if err != nil {
		return descriptor{}, err
	}
	d := describe(mediaType, b)
	blobs[d.Digest] = b
	return d, nil
}

// layer returns the image's only layer, as a plain and as a compressed tar.
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
		default:
			h.Typeflag, h.Mode, h.Size = tar.TypeReg, f.Mode, int64(len(f.Content))
		}
		if err := t.WriteHeader(h); err != nil {
			return fmt.Errorf("image: %s: %w", name, err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := t.Write(f.Content); err != nil {
				return fmt.Errorf("image: %s: %w", name, err)
			}
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
