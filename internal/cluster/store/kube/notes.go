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

// The pause before a write is tried again: from the first to the longest.
const againFirst, againLongest = 200 * time.Millisecond, 5 * time.Second

// mostNotes are the pods whose annotations may wait. A node has far fewer.
const mostNotes = 4096

// note is what is to be written to one pod.
type note struct {
	Pod         model.PodRef      `json:"pod"`
	Annotations map[string]string `json:"annotations"`
}

// notes are the annotations that are not written yet, the oldest first and one note for a pod. They are kept as a file
// beside the snapshot.
type notes struct {
	s    *Store
	wake notify.Chan

	mu    sync.Mutex
	list  []note
	dirty bool
}

func newNotes(s *Store) *notes { return &notes{s: s, wake: notify.New()} }

// add queues annotations behind what the pod is to get already.
func (n *notes) add(pod model.PodRef, annotations map[string]string) {
	n.mu.Lock()
	n.put(pod, annotations)
	n.mu.Unlock()
	n.s.unsaved()
}

// put queues; the lock is held.
func (n *notes) put(pod model.PodRef, annotations map[string]string) {
	n.dirty = true
	n.wake.Notify()
	for _, have := range n.list {
		if have.Pod == pod {
			maps.Copy(have.Annotations, annotations)
			return
		}
	}
	if len(n.list) == mostNotes {
		n.s.log.Warn("annotations are lost", "pod", n.list[0].Pod.String())
		n.list = n.list[1:]
	}
	n.list = append(n.list, note{pod, maps.Clone(annotations)})
}

// next is a copy of the oldest note.
func (n *notes) next() (note, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.list) == 0 {
		return note{}, false
	}
	return note{n.list[0].Pod, maps.Clone(n.list[0].Annotations)}, true
}

// written takes a note away, but for what was added to it since.
func (n *notes) written(done note) {
	n.mu.Lock()
	for i, have := range n.list {
		if have.Pod != done.Pod {
			continue
		}
		if maps.Equal(have.Annotations, done.Annotations) {
			n.list = append(n.list[:i:i], n.list[i+1:]...)
		}
		break
	}
	n.dirty = true
	n.mu.Unlock()
	n.s.unsaved()
}

// run writes notes until ctx ends.
func (n *notes) run(ctx context.Context) error {
	pause := againFirst
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
		case err != nil && passing(err):
			select {
			case <-n.s.cfg.After(pause):
			case <-ctx.Done():
			}
			pause = min(2*pause, againLongest)
			continue
		case err != nil:
			n.s.log.Error("pod cannot be annotated", "pod", next.Pod.String(), "err", err)
		}
		pause = againFirst
		n.written(next)
	}
}

func (n *notes) file() string { return filepath.Join(n.s.cfg.Dir, "annotations.json") }

// restore reads what an agent before has not written.
func (n *notes) restore() {
	if n.s.cfg.Dir == "" {
		return
	}
	b, err := os.ReadFile(n.file())
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		err = json.Unmarshal(b, &n.list)
	}
	if err != nil {
		n.list = nil
		n.s.log.Warn("annotations of before are lost", "err", err)
	}
}

// save writes the file when it is old.
func (n *notes) save() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.dirty {
		return nil
	}
	b, err := json.Marshal(n.list)
	if err == nil {
		err = atomicfile.Write(n.file(), b, 0o600, atomicfile.CrashSafe)
	}
	if err != nil {
		return fmt.Errorf("annotations: %w", err)
	}
	n.dirty = false
	return nil
}
