// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/weft-net/weft/internal/notify"
)

// worker syncs one pod to its desired state. No other goroutine changes the pod.
type worker struct {
	s    *Server
	uid  string
	log  *slog.Logger
	wake notify.Chan
	done chan struct{} // closed when the pod is gone

	mu     sync.Mutex
	want   desired
	cancel context.CancelFunc // of the current sync
	// reason and message explain why the pod is not in its desired state.
	reason, message string

	restarts *backOff
	retry    time.Duration
}

// stage is the stage of a pod's lifecycle.
type stage int

const (
	syncing stage = iota
	terminating
	terminated
)

func (s *Server) newWorker(d desired) *worker {
	w := &worker{
		s: s, uid: string(d.Pod.UID), want: d, wake: notify.New(), done: make(chan struct{}),
		log:      s.log.With("pod", d.Pod.Namespace+"/"+d.Pod.Name),
		restarts: newBackOff(s.cfg.Times),
	}
	w.wake.Notify()
	return w
}

// update replaces the desired state. A deletion cancels the current sync.
func (w *worker) update(d desired) {
	w.mu.Lock()
	w.want = d
	if d.Deleted != nil && w.cancel != nil {
		w.cancel()
	}
	w.mu.Unlock()
	w.wake.Notify()
}

func (w *worker) desired() desired {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.want
}

func (w *worker) pod() *v1.Pod { return w.desired().Pod }

// setReason records why the pod is not in its desired state, and logs a change.
func (w *worker) setReason(reason, message string) {
	w.mu.Lock()
	changed := w.reason != reason || w.message != message
	w.reason, w.message = reason, message
	w.mu.Unlock()
	if changed && reason != "" {
		w.log.Warn("pod is not in its desired state", "reason", reason, "message", message)
	}
}

func (w *worker) lastReason() (reason, message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reason, w.message
}

// run syncs the pod until it is removed or ctx ends.
func (w *worker) run(ctx context.Context) {
	at := syncing
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-again:
		}
		again = nil
		next, after := w.sync(ctx, at)
		if at == terminated && next == terminated && after == 0 {
			close(w.done)
			return
		}
		if next != at {
			at = next
			w.wake.Notify()
			continue
		}
		if after > 0 {
			again = time.After(after)
		}
	}
}

// sync runs once; it returns the next stage, and the time until the next sync (0: at the next event).
func (w *worker) sync(ctx context.Context, at stage) (next stage, after time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	w.mu.Lock()
	w.cancel = cancel
	d := w.want
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.cancel = nil
		w.mu.Unlock()
		cancel()
	}()
	if d.Deleted != nil && at == syncing {
		at = terminating
	}
	var err error
	switch at {
	case syncing:
		after, err = w.syncPod(ctx, d)
	case terminating:
		if err = w.syncTerminatingPod(ctx, d); err == nil {
			return terminated, 0
		}
		w.setReason("FailedKillPod", err.Error())
	case terminated:
		if err = w.syncTerminatedPod(ctx, d); err == nil {
			return terminated, 0
		}
		w.setReason("FailedCleanUp", err.Error())
	}
	if err != nil {
		t := w.s.cfg.Times
		w.retry = min(max(2*w.retry, t.Retry), t.RetryCap)
		return at, w.retry
	}
	w.retry = 0
	return at, after
}
