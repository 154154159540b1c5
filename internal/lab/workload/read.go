// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/lab"
	"github.com/weft-net/weft/internal/lab/layout"
	"github.com/weft-net/weft/internal/lab/replicas"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/sandbox/pod"
	"github.com/weft-net/weft/internal/vm/manifest"
)

// read reads the objects of files, of the manifests in directories, and of stdin ("-"). Errors have the path and the line.
func read(paths []string, stdin io.Reader) ([]store.Object, error) {
	tmp, err := os.MkdirTemp("", "weft-apply-")
	if err != nil {
		return nil, fmt.Errorf("temporary directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	files, err := expand(paths)
	if err != nil {
		return nil, err
	}
	written := map[string]string{}
	for i, path := range files {
		var b []byte
		if path == "-" {
			b, err = io.ReadAll(stdin)
		} else {
			b, err = os.ReadFile(path)
		}
		if err != nil {
			return nil, unreadable(path, err)
		}
		to := filepath.Join(tmp, fmt.Sprintf("%04d%s", i, extension(path)))
		if err := os.WriteFile(to, b, 0o600); err != nil {
			return nil, fmt.Errorf("temporary file: %w", err)
		}
		written[to] = path
		if path == "-" {
			written[to] = "stdin"
		}
	}
	s, err := dir.Open(tmp)
	if err != nil {
		return nil, err
	}
	problems, err := s.Problems()
	if err := errors.Join(append(problems, err)...); err != nil {
		return nil, lab.OriginalPaths(err, written)
	}
	objects, err := s.List("")
	if err == nil && len(objects) == 0 {
		err = model.Errorf(model.CodeInvalidConf, "choose files with Kubernetes manifests", "%s contains no manifest",
			strings.Join(paths, ", "))
	}
	return objects, err
}

func unreadable(path string, err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return model.Errorf(model.CodeIO, "choose a readable file or directory, or - for stdin", "--filename %q: %w", path, err)
}

func extension(path string) string {
	if filepath.Ext(path) == ".json" {
		return ".json"
	}
	return ".yaml"
}

// expand replaces directories by the manifests directly in them.
func expand(paths []string) (out []string, err error) {
	for _, path := range paths {
		if path == "-" {
			out = append(out, path)
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, unreadable(path, err)
		}
		if !info.IsDir() {
			out = append(out, path)
			continue
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, unreadable(path, err)
		}
		for _, e := range entries {
			if ext := filepath.Ext(e.Name()); !e.IsDir() && !strings.HasPrefix(e.Name(), ".") &&
				slices.Contains([]string{".yaml", ".yml", ".json"}, ext) {
				out = append(out, filepath.Join(path, e.Name()))
			}
		}
	}
	return out, nil
}

// validate refuses what the lab cannot run, before anything is written.
func validate(objects []store.Object, l layout.Layout) error {
	_, problems := store.Cluster(objects)
	errs := problems
	for _, o := range objects {
		errs = append(errs, validateObject(o, l))
	}
	err := errors.Join(errs...)
	var f *model.Error
	if errors.As(err, &f) && len(slices.DeleteFunc(errs, func(e error) bool { return e == nil })) == 1 {
		return f // with its hint
	}
	return err
}

func validateObject(o store.Object, l layout.Layout) error {
	switch {
	case o.Is("Node"):
		if !l.Has(o.Key.Name) {
			return model.Errorf(model.CodeInvalidConf, "create nodes with `weft lab add-node`",
				"node %s: metadata.name %q is not a node of this lab", o.Key.Name, o.Key.Name)
		}
	case o.Is("Pod"):
		p, err := o.Pod()
		if err != nil {
			return err
		}
		if p.Node != "" && !l.Has(p.Node) {
			return model.Errorf(model.CodeInvalidConf, "use one of the nodes that `weft lab status` lists",
				"pod %s/%s: spec.nodeName %q is not a node of this lab", p.Namespace, p.Name, p.Node)
		}
		_, _, err = pod.Parse(o.Raw, o.Key.String())
		return err
	case replicas.Is(o):
		s, err := replicas.Read(o)
		if err != nil {
			return err
		}
		sample, err := s.Sample()
		if err != nil {
			return err
		}
		_, _, err = pod.Parse(sample.Raw, s.Name()+": template")
		return err
	case lab.IsVM(o):
		if _, err := manifest.ReadLaunch(o.Raw, manifest.Options{}); err != nil {
			return fmt.Errorf("VM %s: %w", o.Key.Name, err)
		}
	default:
		return lab.CheckPolicy(o)
	}
	return nil
}
