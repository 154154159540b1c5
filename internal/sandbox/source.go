// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weft-net/weft/internal/sandbox/pod"
)

// followDir keeps the pods of a directory of manifests running: a file that is gone ends its pods, one that changes
// replaces them. A file that cannot be read is named, and its pods are left as they are.
func (s *Server) followDir(ctx context.Context) error {
	if s.cfg.PodsDir == "" {
		<-ctx.Done()
		return nil
	}
	n, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("pods directory: %w", err)
	}
	defer func() { _ = n.Close() }()
	told := map[string]string{}
	for {
		_ = n.Add(s.cfg.PodsDir) // until it exists, the timer looks
		s.readDir(told)
		select {
		case <-ctx.Done():
			return nil
		case <-n.Events:
			time.Sleep(20 * time.Millisecond) // files are written in several steps
		drain:
			for {
				select {
				case <-n.Events:
				default:
					break drain
				}
			}
		case <-n.Errors:
		case <-time.After(s.cfg.Times.Housekeeping):
		}
	}
}

// readDir compares the directory with what is desired. told remembers which complaints were logged.
func (s *Server) readDir(told map[string]string) {
	entries, err := os.ReadDir(s.cfg.PodsDir)
	complain := func(path string, err error) {
		text := ""
		if err != nil {
			text = err.Error()
		}
		if told[path] != text && text != "" {
			s.log.Warn("manifest", "file", path, "error", err)
		}
		told[path] = text
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		complain(s.cfg.PodsDir, err)
		return
	}
	want := map[types.UID]bool{}
	broken := map[string]bool{}
	for _, e := range entries {
		path := filepath.Join(s.cfg.PodsDir, e.Name())
		switch ext := filepath.Ext(path); {
		case e.IsDir(), strings.HasPrefix(e.Name(), "."), ext != ".yaml" && ext != ".yml" && ext != ".json":
			continue
		}
		pods, err := staticPods(path)
		if err != nil {
			broken[path] = true
		}
		complain(path, err)
		for _, p := range pods {
			want[p.UID] = true
			_, err := s.apply(p, path)
			complain(path+"#"+pod.Name(p), err)
		}
	}
	for _, w := range s.all() {
		d := w.desired()
		if d.Source != "" && filepath.Dir(d.Source) == s.cfg.PodsDir && !want[d.Pod.UID] && !broken[d.Source] &&
			d.Deleted == nil {
			complain(d.Source+"#end", s.end(w, nil, false))
		}
	}
}

// staticPods reads a manifest. The uid of a pod without one is made from its text, so that a changed pod is another
// one.
func staticPods(path string) ([]*v1.Pod, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	pods, _, err := pod.Read(f, path)
	for _, p := range pods {
		if p.UID == pod.DerivedUID(p) {
			b, e := p.Marshal()
			if e != nil {
				return nil, e
			}
			p.UID = types.UID(fmt.Sprintf("%x", sha256.Sum256(b))[:32])
		}
	}
	return pods, err
}
