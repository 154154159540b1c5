// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

const (
	eventQPS, eventBurst = 5, 50
	// maxQueued bounds the queued events, maxSent the sent ones that are remembered.
	maxQueued, maxSent = 1024, 1024
	// eventAge is how long a repeated event is counted as the same one, and how long an event is queued while the server
	// is unavailable.
	eventAge = 10 * time.Minute
	// eventTTL is how long a server keeps an event (kube-apiserver --event-ttl).
	eventTTL = time.Hour
)

// Event records an event of a pod, asynchronously: at a limited rate, repeated events as a count. If the server is
// unavailable for long, the oldest events are dropped.
func (s *Store) Event(_ context.Context, pod model.PodRef, e model.Event) error {
	if p, ok := s.cachedPod(pod); ok {
		pod.UID = p.UID
	}
	s.events.add(eventKey{pod: pod, event: e, kind: pods()}, "")
	return nil
}

// EventOn is Event for an object of another kind, as it was read from the server: without its UID, kubectl describe
// does not show the event.
func (s *Store) EventOn(_ context.Context, kind store.Kind, o store.Object, e model.Event) error {
	s.events.add(eventKey{pod: refOf(o), event: e, kind: kind}, o.Version)
	return nil
}

// StateEvent is EventOn for what an object is, rather than for what has happened to it: it is written once while the
// server keeps it, however often it is reported, and by however many programs. An object that is changed and changed back
// has two states, so that the last event is the one of the current state.
func (s *Store) StateEvent(kind store.Kind, o store.Object, e model.Event) {
	s.events.add(eventKey{pod: refOf(o), event: e, kind: kind, state: true, generation: o.Generation()}, o.Version)
}

// refOf returns the reference of an object.
func refOf(o store.Object) model.PodRef {
	return model.PodRef{Namespace: o.Key.Namespace, Name: o.Key.Name, UID: o.UID()}
}

// eventKey identifies an event for counting repetitions.
type eventKey struct {
	pod        model.PodRef
	event      model.Event
	kind       store.Kind
	state      bool  // StateEvent
	generation int64 // of the object, for a StateEvent
}

// namespace returns the namespace of the Event object: that of an object without one is default.
func (k eventKey) namespace() string {
	if k.pod.Namespace == "" {
		return metav1.NamespaceDefault
	}
	return k.pod.Namespace
}

// stateName returns the name of the Event object of a StateEvent. It depends on the content only, so that the server
// refuses a second one.
func (k eventKey) stateName() string {
	h := sha256.New()
	for _, text := range []string{
		k.kind.Group, k.kind.Kind, k.pod.Namespace, k.pod.Name, k.pod.UID, k.event.Reason, k.event.Message,
	} {
		fmt.Fprintf(h, "%q", text)
	}
	fmt.Fprintf(h, "%d", k.generation)
	return fmt.Sprintf("%s.%x", k.namePrefix(), h.Sum(nil)[:8])
}

// namePrefix returns the begin of the Event object's name.
func (k eventKey) namePrefix() string {
	return strings.TrimRight(k.pod.Name[:min(len(k.pod.Name), 200)], "-.")
}

// pendingEvent is an event and its count.
type pendingEvent struct {
	eventKey
	name        string // of the Event object, empty before it was sent
	version     string // the object's resourceVersion when it was reported first, empty if not known
	count       int
	first, last time.Time
	due         bool
}

// eventRecorder queues events until they are sent.
type eventRecorder struct {
	s     *Store
	limit flowcontrol.RateLimiter
	wake  notify.Chan

	mu    sync.Mutex
	known map[eventKey]*pendingEvent
	queue []*pendingEvent
	sent  []*pendingEvent // the oldest first
	lost  int
	seq   int
}

func newEventRecorder(s *Store) *eventRecorder {
	return &eventRecorder{
		s: s, limit: flowcontrol.NewTokenBucketRateLimiter(eventQPS, eventBurst), wake: notify.New(),
		known: map[eventKey]*pendingEvent{},
	}
}

func (b *eventRecorder) add(st eventKey, version string) {
	now := b.s.cfg.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.known[st]
	if t != nil && st.state && now.Sub(t.first) <= eventTTL {
		return
	}
	if t == nil || now.Sub(t.last) > eventAge {
		t = &pendingEvent{eventKey: st, version: version, first: now}
		b.known[st] = t
	}
	t.count++
	t.last = now
	if t.due {
		return
	}
	t.due = true
	b.queue = append(b.queue, t)
	if len(b.queue) > maxQueued {
		b.dropLocked(b.queue[0])
		b.queue = b.queue[1:]
		b.lost++
	}
	b.wake.Notify()
}

// next removes the oldest event from the queue and returns it with a copy of its current state.
func (b *eventRecorder) next() (*pendingEvent, pendingEvent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		return nil, pendingEvent{}
	}
	t := b.queue[0]
	b.queue = b.queue[1:]
	t.due = false
	if t.name == "" {
		b.seq++
		if t.name = fmt.Sprintf("%s.%x.%x", t.namePrefix(), t.first.UnixNano(), b.seq); t.state {
			t.name = t.stateName()
		}
		as := *t
		as.name = ""
		return t, as
	}
	return t, *t
}

// dropLocked removes an event.
func (b *eventRecorder) dropLocked(t *pendingEvent) {
	if b.known[t.eventKey] == t {
		delete(b.known, t.eventKey)
	}
}

// run sends events until ctx ends.
func (b *eventRecorder) run(ctx context.Context) error {
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
		if err := b.send(ctx, t.name, as); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			b.s.log.Warn("event was dropped", "kind", t.kind.Kind, "object", strings.TrimPrefix(t.pod.String(), "/"),
				"reason", t.event.Reason, "err", err)
			b.forget(t)
			continue
		}
		b.remember(t)
	}
}

// forget removes an event that was not sent, unless it was added again meanwhile.
func (b *eventRecorder) forget(t *pendingEvent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !t.due {
		b.dropLocked(t)
	}
}

// remember keeps a sent event for counting, up to a limit.
func (b *eventRecorder) remember(t *pendingEvent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lost > 0 {
		b.s.log.Warn("events were dropped", "count", b.lost)
		b.lost = 0
	}
	b.sent = append(b.sent, t)
	for len(b.sent) > maxSent {
		if old := b.sent[0]; !old.due {
			b.dropLocked(old)
		}
		b.sent = b.sent[1:]
	}
}

// send writes one event, with retries until it is outdated.
func (b *eventRecorder) send(ctx context.Context, name string, t pendingEvent) error {
	ctx, cancel := context.WithTimeout(ctx, max(eventAge-b.s.cfg.Now().Sub(t.last), requestTimeout))
	defer cancel()
	made := t.name != ""
	for pause := retryFirst; ; pause = min(2*pause, retryMax) {
		err := b.write(ctx, name, made, t)
		switch {
		case err == nil, apierrors.IsAlreadyExists(err): // the answer to an earlier try was lost
			return nil
		case made && apierrors.IsNotFound(err): // the server deletes events after an hour
			made = false
			continue
		case !isTransient(err):
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

func (b *eventRecorder) write(ctx context.Context, name string, made bool, t pendingEvent) error {
	work, kind := b.s.clients.work, store.Kind{Version: "v1", Kind: "Event", Resource: "events", Namespaced: true}
	last := t.last.UTC().Format(time.RFC3339)
	if made {
		body, err := json.Marshal(map[string]any{"count": t.count, "lastTimestamp": last})
		if err != nil {
			return err
		}
		_, err = do(ctx, requestTimeout,
			work.Patch(types.MergePatchType).AbsPath(path(kind, t.namespace(), name)).Body(body))
		return err
	}
	class, component := "Normal", cmp.Or(b.s.cfg.Component, manager)
	if t.event.Warning {
		class = "Warning"
	}
	about := map[string]any{
		"apiVersion": versionOf(t.kind), "kind": t.kind.Kind, "namespace": t.pod.Namespace, "name": t.pod.Name,
		"uid": t.pod.UID,
	}
	if t.version != "" {
		about["resourceVersion"] = t.version
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Event", "metadata": map[string]any{"name": name, "namespace": t.namespace()},
		"involvedObject": about,
		"type":           class, "reason": t.event.Reason, "message": t.event.Message, "count": t.count,
		"firstTimestamp": t.first.UTC().Format(time.RFC3339), "lastTimestamp": last,
		"source":             map[string]any{"component": component, "host": b.s.cfg.Node},
		"reportingComponent": component, "reportingInstance": b.s.cfg.Node,
	})
	if err != nil {
		return err
	}
	_, err = do(ctx, requestTimeout, asJSON(work.Post().AbsPath(path(kind, t.namespace(), "")), body))
	return err
}
