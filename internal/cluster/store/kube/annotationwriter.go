// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

// The first and the longest delay before a write is retried.
const retryFirst, retryMax = 200 * time.Millisecond, 5 * time.Second

// maxPendingPods bounds the pods with queued annotations. A node has far fewer.
const maxPendingPods = 4096

// pendingAnnotations are the queued annotations of one pod.
type pendingAnnotations struct {
	Pod         model.PodRef      `json:"pod"`
	Annotations map[string]string `json:"annotations"`
}

// annotationWriter queues annotations, the oldest first and one entry per pod. The queue is stored in a file next to
// the snapshot.
type annotationWriter struct {
	s    *Store
	wake notify.Chan

	mu    sync.Mutex
	queue []pendingAnnotations
	dirty bool
}

func newAnnotationWriter(s *Store) *annotationWriter {
	return &annotationWriter{s: s, wake: notify.New()}
}

// add queues annotations, merged with those already queued for the pod.
func (n *annotationWriter) add(pod model.PodRef, annotations map[string]string) {
	n.mu.Lock()
	n.putLocked(pod, annotations)
	n.mu.Unlock()
	n.s.notifySave()
}

// putLocked queues annotations.
func (n *annotationWriter) putLocked(pod model.PodRef, annotations map[string]string) {
	n.dirty = true
	n.wake.Notify()
	for _, have := range n.queue {
		if have.Pod == pod {
			maps.Copy(have.Annotations, annotations)
			return
		}
	}
	if len(n.queue) == maxPendingPods {
		n.s.log.Warn("annotations were dropped; too many pods are queued", "pod", n.queue[0].Pod.String())
		n.queue = n.queue[1:]
	}
	n.queue = append(n.queue, pendingAnnotations{pod, maps.Clone(annotations)})
}

// next returns a copy of the oldest entry.
func (n *annotationWriter) next() (pendingAnnotations, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.queue) == 0 {
		return pendingAnnotations{}, false
	}
	return pendingAnnotations{n.queue[0].Pod, maps.Clone(n.queue[0].Annotations)}, true
}

// written removes an entry, unless annotations were added to it since.
func (n *annotationWriter) written(done pendingAnnotations) {
	n.mu.Lock()
	for i, have := range n.queue {
		if have.Pod != done.Pod {
			continue
		}
		if maps.Equal(have.Annotations, done.Annotations) {
			n.queue = append(n.queue[:i:i], n.queue[i+1:]...)
		}
		break
	}
	n.dirty = true
	n.mu.Unlock()
	n.s.notifySave()
}

// run writes the queue until ctx ends.
func (n *annotationWriter) run(ctx context.Context) error {
	pause := retryFirst
	for {
		next, ok := n.next()
		if !ok {
			select {
			case <-n.wake:
				continue
			case <-ctx.Done():
				return nil
			}
		}
		err := n.s.annotate(ctx, next.Pod, next.Annotations)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && isTransient(err):
			select {
			case <-n.s.cfg.After(pause):
			case <-ctx.Done():
			}
			pause = min(2*pause, retryMax)
			continue
		case err != nil:
			n.s.log.Error("pod cannot be annotated", "pod", next.Pod.String(), "err", err)
		}
		pause = retryFirst
		n.written(next)
	}
}

func (n *annotationWriter) file() string { return filepath.Join(n.s.cfg.Dir, "annotations.json") }

// restore reads the queue of an earlier agent.
func (n *annotationWriter) restore() {
	if n.s.cfg.Dir == "" {
		return
	}
	b, err := os.ReadFile(n.file())
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		err = json.Unmarshal(b, &n.queue)
	}
	if err != nil {
		n.queue = nil
		n.s.log.Warn("queued annotations of an earlier agent cannot be read", "err", err)
	}
}

// save writes the file if the queue has changed.
func (n *annotationWriter) save() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.dirty {
		return nil
	}
	b, err := json.Marshal(n.queue)
	if err == nil {
		err = atomicfile.Write(n.file(), b, 0o600, atomicfile.CrashSafe)
	}
	if err != nil {
		return fmt.Errorf("annotations: %w", err)
	}
	n.dirty = false
	return nil
}
