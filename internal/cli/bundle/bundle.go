// SPDX-License-Identifier: Apache-2.0

// Package bundle collects the support bundles of a cluster, and reads them.
package bundle

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/explain"
)

// Limits of what is read, in bytes.
const (
	memberLimit  = 16 << 20
	objectsLimit = 1 << 30 // 100,000 pods have some 50 MB
)

// notBundle is the hint about a file that is something else.
const notBundle = "make one on each node: weft support-bundle"

// Recorded is what support bundles know.
type Recorded struct {
	Nodes   map[string]explain.Node
	Answers explain.Answers
	// Objects are nil if no ObjectsFile was named.
	Objects Objects
}

// Read reads what agents have answered to weft explain, from a bundle for each node, and the cluster's objects. A path
// may be the directory that has them all.
func Read(paths []string) (Recorded, error) {
	out := Recorded{Nodes: map[string]explain.Node{}, Answers: explain.Answers{}}
	from := map[string]string{}
	paths, err := files(paths)
	if err != nil {
		return out, err
	}
	for _, path := range paths {
		if filepath.Base(path) == ObjectsFile {
			if out.Objects, err = readObjects(path); err != nil {
				return out, err
			}
			continue
		}
		r, err := readRecord(path)
		if err != nil {
			return out, err
		}
		if other, twice := from[r.Node.Name]; twice {
			return out, model.Errorf(model.CodeInvalidConf, "name one bundle for each node",
				"--from %s and %s: both are of node %s", other, path, r.Node.Name)
		}
		from[r.Node.Name], out.Nodes[r.Node.Name] = path, r.Node
		for q, a := range r.Answers {
			if q.Node == r.Node.Name {
				out.Answers[q] = a
			}
		}
	}
	if len(out.Nodes) == 0 {
		return out, model.Errorf(model.CodeInvalidConf, notBundle, "--from %s: no support bundle",
			strings.Join(paths, ","))
	}
	return out, nil
}

// files replaces directories by the files in them.
func files(paths []string) (out []string, err error) {
	for _, path := range paths {
		entries, err := os.ReadDir(path)
		if errors.Is(err, unix.ENOTDIR) || errors.Is(err, fs.ErrNotExist) { // reading the file says what is wrong
			out = append(out, path)
			continue
		}
		if err != nil {
			return nil, ui.FileError(notBundle, "--from", path, err)
		}
		before := len(out)
		for _, e := range entries {
			if e.Name() == ObjectsFile || strings.HasSuffix(e.Name(), ".tar.gz") {
				out = append(out, filepath.Join(path, e.Name()))
			}
		}
		if len(out) == before {
			return nil, model.Errorf(model.CodeInvalidConf, notBundle, "--from %s: no file NODE.tar.gz in the directory", path)
		}
	}
	return out, nil
}

// readObjects reads an ObjectsFile.
func readObjects(path string) (Objects, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, ui.FileError(notBundle, "--from", path, err)
	}
	defer func() { _ = f.Close() }()
	objects, err := decodeObjects(io.LimitReader(f, objectsLimit))
	if err != nil {
		return nil, model.Errorf(model.CodeDecode, "make it again: weft support-bundle --kubeconfig FILE", "--from %s: %w", path, err)
	}
	return objects, nil
}

// readRecord reads the record of one bundle.
func readRecord(path string) (r explain.Record, err error) {
	f, err := os.Open(path)
	if err != nil {
		return r, ui.FileError(notBundle, "--from", path, err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		return r, model.Errorf(model.CodeDecode, notBundle, "--from %s: not a support bundle: %w", path, err)
	}
	const member = "weft/" + explain.RecordFile
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		switch {
		case errors.Is(err, io.EOF):
			return r, model.Errorf(model.CodeDecode, "make it again with this version of weft",
				"--from %s: it has no %s", path, member)
		case err != nil:
			return r, model.Errorf(model.CodeDecode, notBundle, "--from %s: not a support bundle: %w", path, err)
		case h.Name == member+".error":
			text, _ := io.ReadAll(io.LimitReader(t, memberLimit))
			return r, model.Errorf(model.CodeNotAvailable, "start the agent and make the bundle again",
				"--from %s: %s: %.300s", path, member, text)
		case h.Name != member:
			continue
		}
		if err := json.NewDecoder(io.LimitReader(t, memberLimit)).Decode(&r); err != nil {
			return r, model.Errorf(model.CodeDecode, "make it again", "--from %s: %s: %w", path, member, err)
		}
		if r.Node.Name == "" {
			return r, model.Errorf(model.CodeDecode, notBundle, "--from %s: %s: it names no node", path, member)
		}
		return r, nil
	}
}
