// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

const (
	eventQPS, eventBurst = 5, 50
	// mostEvents are those that wait, mostTold those of which it is remembered that they were told.
	mostEvents, mostTold = 1024, 1024
	// eventAge is how long one is told again as the same one, and how long one waits for a server that is away.
	eventAge = 10 * time.Minute
)

// Event tells about a pod, behind the caller's back: at a limited rate, the same thing again as a count. When the
// server is away for long, the oldest are lost; an event is a courtesy.
func (s *Store) Event(_ context.Context, pod model.PodRef, e model.Event) error {
	if p, ok := s.podOnShelf(pod); ok {
		pod.UID = p.UID
	}
	s.events.add(story{pod, e, pods()})
	return nil
}

// EventOn is Event about an object of another kind.
func (s *Store) EventOn(_ context.Context, kind store.Kind, object model.PodRef, e model.Event) error {
	s.events.add(story{object, e, kind})
	return nil
}

// story is what makes two events the same.
type story struct {
	pod   model.PodRef
	event model.Event
	kind  store.Kind
}

// telling is a story and how often it happened.
type telling struct {
	story
	name        string // of the object on the server, empty before it was told
	count       int
	first, last time.Time
	due         bool
}

// postbox holds events until they are told.
type postbox struct {
	s     *Store
	limit flowcontrol.RateLimiter
	wake  notify.Chan

	mu    sync.Mutex
	known map[story]*telling
	queue []*telling
	told  []*telling // the oldest first
	lost  int
	seq   int
}

func newPostbox(s *Store) *postbox {
	return &postbox{
		s: s, limit: flowcontrol.NewTokenBucketRateLimiter(eventQPS, eventBurst), wake: notify.New(),
		known: map[story]*telling{},
	}
}

func (b *postbox) add(st story) {
	now := b.s.cfg.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.known[st]
	if t == nil || now.Sub(t.last) > eventAge {
		t = &telling{story: st, first: now}
		b.known[st] = t
	}
	t.count++
	t.last = now
	if t.due {
		return
	}
	t.due = true
	b.queue = append(b.queue, t)
	if len(b.queue) > mostEvents {
		b.drop(b.queue[0])
		b.queue = b.queue[1:]
		b.lost++
	}
	b.wake.Notify()
}

// next takes the oldest event out of the queue, as it is now.
func (b *postbox) next() (*telling, telling) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		return nil, telling{}
	}
	t := b.queue[0]
	b.queue = b.queue[1:]
	t.due = false
	if t.name == "" {
		b.seq++
		t.name = fmt.Sprintf("%s.%x.%x", strings.TrimRight(t.pod.Name[:min(len(t.pod.Name), 200)], "-."),
			t.first.UnixNano(), b.seq)
		as := *t
		as.name = ""
		return t, as
	}
	return t, *t
}

// drop forgets an event; the lock is held.
func (b *postbox) drop(t *telling) {
	if b.known[t.story] == t {
		delete(b.known, t.story)
	}
}

// run tells events until ctx ends.
func (b *postbox) run(ctx context.Context) error {
	for {
		t, as := b.next()
		if t == nil {
			select {
			case <-b.wake:
				continue
			case <-ctx.Done():
				return nil
			}
		}
		if b.limit.Wait(ctx) != nil {
			return nil
		}
		if err := b.tell(ctx, t.name, as); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			b.s.log.Warn("event is lost", "pod", t.pod.String(), "reason", t.event.Reason, "err", err)
		}
		b.remember(t)
	}
}

// remember keeps what was told, and not too much of it.
func (b *postbox) remember(t *telling) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lost > 0 {
		b.s.log.Warn("events are lost", "count", b.lost)
		b.lost = 0
	}
	b.told = append(b.told, t)
	for len(b.told) > mostTold {
		if old := b.told[0]; !old.due {
			b.drop(old)
		}
		b.told = b.told[1:]
	}
}

// tell writes one event, trying for as long as it is worth telling.
func (b *postbox) tell(ctx context.Context, name string, t telling) error {
	ctx, cancel := context.WithTimeout(ctx, max(eventAge-b.s.cfg.Now().Sub(t.last), patient))
	defer cancel()
	made := t.name != ""
	for pause := againFirst; ; pause = min(2*pause, againLongest) {
		err := b.write(ctx, name, made, t)
		switch {
		case err == nil, apierrors.IsAlreadyExists(err): // an answer was lost
			return nil
		case made && apierrors.IsNotFound(err): // the server forgets events after an hour
			made = false
			continue
		case !passing(err):
			return err
		}
		select {
		case <-b.s.cfg.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

func versionOf(kind store.Kind) string {
	if kind.Group == "" {
		return kind.Version
	}
	return kind.Group + "/" + kind.Version
}

func (b *postbox) write(ctx context.Context, name string, made bool, t telling) error {
	work, kind := b.s.clients.work, store.Kind{Version: "v1", Kind: "Event", Resource: "events", Namespaced: true}
	last := t.last.UTC().Format(time.RFC3339)
	if made {
		body, err := json.Marshal(map[string]any{"count": t.count, "lastTimestamp": last})
		if err != nil {
			return err
		}
		_, err = ask(ctx, patient, work.Patch(types.MergePatchType).AbsPath(path(kind, t.pod.Namespace, name)).Body(body))
		return err
	}
	class := "Normal"
	if t.event.Warning {
		class = "Warning"
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Event", "metadata": map[string]any{"name": name, "namespace": t.pod.Namespace},
		"involvedObject": map[string]any{
			"apiVersion": versionOf(t.kind), "kind": t.kind.Kind, "namespace": t.pod.Namespace, "name": t.pod.Name,
			"uid": t.pod.UID,
		},
		"type": class, "reason": t.event.Reason, "message": t.event.Message, "count": t.count,
		"firstTimestamp": t.first.UTC().Format(time.RFC3339), "lastTimestamp": last,
		"source":             map[string]any{"component": manager, "host": b.s.cfg.Node},
		"reportingComponent": manager, "reportingInstance": b.s.cfg.Node,
	})
	if err != nil {
		return err
	}
	_, err = ask(ctx, patient, asJSON(work.Post().AbsPath(path(kind, t.pod.Namespace, "")), body))
	return err
}
