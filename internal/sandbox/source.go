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

// watchDir runs the static pods of a directory: removing a file terminates its pods, changing it replaces them. A file
// that cannot be read is logged, and its pods are not touched.
func (s *Server) watchDir(ctx context.Context) error {
	if s.cfg.PodsDir == "" {
		<-ctx.Done()
		return nil
	}
	n, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("pods directory: %w", err)
	}
	defer func() { _ = n.Close() }()
	logged := map[string]string{}
	for {
		_ = n.Add(s.cfg.PodsDir) // fails until the directory exists; until then the timer triggers
		s.readDir(logged)
		select {
		case <-ctx.Done():
			return nil
		case <-n.Events:
			time.Sleep(20 * time.Millisecond) // a file may be written in several steps
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

// readDir compares the directory with the desired pods. logged has the last error of each file, so that it is logged only
// once.
func (s *Server) readDir(logged map[string]string) {
	entries, err := os.ReadDir(s.cfg.PodsDir)
	warn := func(path string, err error) {
		text := ""
		if err != nil {
			text = err.Error()
		}
		if logged[path] != text && text != "" {
			s.log.Warn("manifest of static pods failed", "file", path, "err", err)
		}
		logged[path] = text
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		warn(s.cfg.PodsDir, err)
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
		warn(path, err)
		for _, p := range pods {
			want[p.UID] = true
			_, err := s.apply(p, path)
			warn(path+"#"+pod.Name(p), err)
		}
	}
	for _, w := range s.allWorkers() {
		d := w.desired()
		if d.Source != "" && filepath.Dir(d.Source) == s.cfg.PodsDir && !want[d.Pod.UID] && !broken[d.Source] &&
			d.Deleted == nil {
			warn(d.Source+"#end", s.terminate(w, nil, false))
		}
	}
}

// staticPods reads a manifest. The UID of a pod without one is a hash of its spec, so that a changed pod is a new pod.
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
