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

// worker brings one pod to what it shall be. It is the only one that touches the pod.
type worker struct {
	s    *Server
	uid  string
	log  *slog.Logger
	wake notify.Chan
	done chan struct{} // closed when the pod is gone

	mu     sync.Mutex
	want   desired
	cancel context.CancelFunc // of the sync that is going on
	reason string             // why it is not what it shall be yet
	why    string

	restarts *backOff
	retry    time.Duration
}

// stage is where a pod is in its life.
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
	w.poke()
	return w
}

// poke makes the worker look again.
func (w *worker) poke() {
	w.wake.Notify()
}

// update changes what shall be. A sync that is going on is interrupted when the pod shall end.
func (w *worker) update(d desired) {
	w.mu.Lock()
	w.want = d
	if d.Deleted != nil && w.cancel != nil {
		w.cancel()
	}
	w.mu.Unlock()
	w.poke()
}

func (w *worker) desired() desired {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.want
}

func (w *worker) pod() *v1.Pod { return w.desired().Pod }

// say records why the pod is not what it shall be; it is logged when it is new.
func (w *worker) say(reason, why string) {
	w.mu.Lock()
	news := w.reason != reason || w.why != why
	w.reason, w.why = reason, why
	w.mu.Unlock()
	if news && reason != "" {
		w.log.Warn("pod", "reason", reason, "why", why)
	}
}

func (w *worker) said() (reason, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reason, w.why
}

// run works until the pod is gone or ctx ends.
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
			w.poke()
			continue
		}
		if after > 0 {
			again = time.After(after)
		}
	}
}

// sync makes one step; it returns the next stage, and after how long to look again (0: when something happens).
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
		w.say("FailedKillPod", err.Error())
	case terminated:
		if err = w.syncTerminatedPod(ctx, d); err == nil {
			return terminated, 0
		}
		w.say("FailedCleanUp", err.Error())
	}
	if err != nil {
		t := w.s.cfg.Times
		w.retry = min(max(2*w.retry, t.Retry), t.RetryCap)
		return at, w.retry
	}
	w.retry = 0
	return at, after
}
