// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/weft-net/weft/internal/cluster/store"
)

// How long a watch that failed waits: from the first to the longest. A node must not stay behind for long when the
// server is back, and a thousand nodes that knock every few seconds are no load.
const backoffFirst, backoffLongest = 500 * time.Millisecond, 5 * time.Second

// missing is how often a kind that the server does not have is looked for: its definition may be installed later.
const missing = 30 * time.Second

// missingLeast is the least for kinds of policies, and missingEach what each node of the cluster adds.
const missingLeast, missingEach = 2 * time.Second, 10 * time.Millisecond

// Watch follows what facts are made of: the node's pods, all nodes, namespaces and networks. What the snapshot knows is
// told first, so Synced does not wait for the server where there is one. It is called once.
func (s *Store) Watch(ctx context.Context) (<-chan store.Event, error) {
	var shelfs []*shelf
	for _, kind := range s.factKinds() {
		shelfs = append(shelfs, s.shelf(kind))
	}
	return s.follow(ctx, s.reduceFact, s.unsaved, shelfs...), nil
}

// follow starts a watch that fills the shelves. changed is called after each change.
func (s *Store) follow(ctx context.Context, keep reduce, changed func(), shelfs ...*shelf) <-chan store.Event {
	f := &feed{ctx: ctx, out: make(chan store.Event), waiting: map[string]bool{}}
	for _, sh := range shelfs {
		f.waiting[sh.kind.Resource] = true
		sh.tell = func(e store.Event) { f.send(e); changed() }
		sh.filled = func() { f.filled(sh.kind) }
	}
	var running sync.WaitGroup
	for _, sh := range shelfs {
		running.Go(func() {
			for _, o := range sh.all() {
				f.send(store.Event{Type: store.Added, Object: o})
			}
			if sh.lean {
				s.recall(sh, func(o store.Object) { f.send(store.Event{Type: store.Added, Object: o}) })
			}
			if sh.restored && !sh.lean {
				sh.filled()
			}
			s.reflect(ctx, sh, keep)
		})
	}
	go func() {
		running.Wait()
		close(f.out)
	}()
	return f.out
}

// feed is the channel of one watch.
type feed struct {
	ctx     context.Context //nolint:containedctx // the feed is that of one call of Watch
	out     chan store.Event
	mu      sync.Mutex
	waiting map[string]bool // resources not yet told in full
}

func (f *feed) send(e store.Event) {
	select {
	case f.out <- e:
	case <-f.ctx.Done():
	}
}

// filled notes that all of a kind was told, and tells when that was the last one.
func (f *feed) filled(kind store.Kind) {
	f.mu.Lock()
	had := f.waiting[kind.Resource]
	delete(f.waiting, kind.Resource)
	last := had && len(f.waiting) == 0
	f.mu.Unlock()
	if last {
		f.send(store.Event{Type: store.Synced})
	}
}

// reflect keeps a shelf as the server has it, until ctx ends.
func (s *Store) reflect(ctx context.Context, sh *shelf, keep reduce) {
	ctx = klog.NewContext(ctx, logr.Discard()) // outage says what is worth saying
	from := &source{s: s, shelf: sh, kind: sh.kind, keep: keep}
	silent := logr.Discard()
	cache.NewReflectorWithOptions(&cache.ListWatch{ListWithContextFunc: from.list, WatchFuncWithContext: from.watch},
		&item{}, sh, cache.ReflectorOptions{
			Logger: &silent, Name: sh.kind.Resource, TypeDescription: sh.kind.Resource,
			Backoff: &wait.Backoff{Duration: backoffFirst, Cap: backoffLongest, Factor: 2, Steps: 10, Jitter: 0.5},
		}).RunWithContext(ctx)
}

// source lists and watches one kind.
type source struct {
	s     *Store
	shelf *shelf
	kind  store.Kind
	keep  reduce
	// denied is how often in a row the server did not know the kind.
	denied int
}

func (f *source) request(o metav1.ListOptions) *rest.Request {
	r := f.s.clients.work.Get().AbsPath(path(f.kind, "", ""))
	set := func(name, value string) {
		if value != "" {
			r = r.Param(name, value)
		}
	}
	set("fieldSelector", f.shelf.fields)
	set("resourceVersion", o.ResourceVersion)
	set("resourceVersionMatch", string(o.ResourceVersionMatch))
	set("continue", o.Continue)
	if o.Limit > 0 {
		set("limit", strconv.FormatInt(o.Limit, 10))
	}
	if o.TimeoutSeconds != nil {
		set("timeoutSeconds", strconv.FormatInt(*o.TimeoutSeconds, 10))
	}
	if o.AllowWatchBookmarks {
		set("allowWatchBookmarks", "true")
	}
	if o.SendInitialEvents != nil {
		set("sendInitialEvents", strconv.FormatBool(*o.SendInitialEvents))
	}
	return r
}

func (f *source) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	raw, err := ask(ctx, time.Minute, f.request(o))
	f.s.outage.note(f.kind, err)
	if err == nil {
		f.denied = 0
		return newItems(f.kind, raw, f.keep)
	}
	if apierrors.IsNotFound(err) {
		f.deny(ctx)
	} else {
		f.shelf.alone()
	}
	return nil, err
}

// absent is how long a kind that the server does not have is not looked for. Policies are to be obeyed soon after their
// kind is installed; thousands of nodes must not ask all the time.
func (f *source) absent() time.Duration {
	if !f.shelf.lean {
		return missing
	}
	nodes := len(f.s.shelf(store.Nodes()).keys())
	return min(max(missingLeast, time.Duration(nodes)*missingEach), missing)
}

// deny believes a server that says that it does not have the kind, when it says so again: one that starts may not know
// yet.
func (f *source) deny(ctx context.Context) {
	const believed = 3
	f.denied++
	if f.denied < believed && len(f.shelf.keys()) > 0 {
		return
	}
	_ = f.shelf.Replace(nil, "")
	select {
	case <-f.s.cfg.After(f.absent()):
	case <-ctx.Done():
	}
}

func (f *source) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	body, err := f.request(o).Param("watch", "true").Stream(ctx)
	if !apierrors.IsNotFound(err) {
		f.s.outage.note(f.kind, err)
	}
	if err != nil {
		f.shelf.alone()
		return nil, err
	}
	reporter := apierrors.NewClientErrorReporter(http.StatusInternalServerError, http.MethodGet, "ClientWatchDecoding")
	return watch.NewStreamWatcherWithLogger(logr.Discard(), &frames{f.kind, body, json.NewDecoder(body), f.keep},
		reporter), nil
}
