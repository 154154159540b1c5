// SPDX-License-Identifier: Apache-2.0

// Package bundle collects the support bundles of a cluster, and reads them.
package bundle

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/explain"
)

// memberLimit is the largest member that is read, in bytes.
const memberLimit = 16 << 20

// notBundle is the hint about a file that is something else.
const notBundle = "make one on each node: weft support-bundle"

// Records reads what agents have answered to weft explain, from a bundle for each node.
func Records(paths []string) (map[string]explain.Node, explain.Answers, error) {
	nodes, answers, from := map[string]explain.Node{}, explain.Answers{}, map[string]string{}
	for _, path := range paths {
		r, err := record(path)
		if err != nil {
			return nil, nil, err
		}
		if other, twice := from[r.Node.Name]; twice {
			return nil, nil, model.Errorf(model.CodeInvalidConf, "name one bundle for each node",
				"--from %s and %s: both are of node %s", other, path, r.Node.Name)
		}
		from[r.Node.Name], nodes[r.Node.Name] = path, r.Node
		for q, a := range r.Answers {
			if q.Node == r.Node.Name {
				answers[q] = a
			}
		}
	}
	return nodes, answers, nil
}

// record reads the record of one bundle.
func record(path string) (r explain.Record, err error) {
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
