// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"errors"
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

// The first and the longest delay before a failed watch is retried. A node must catch up soon when the server is back,
// and retries of a thousand nodes every few seconds are a small load.
const backoffFirst, backoffMax = 500 * time.Millisecond, 5 * time.Second

// missingRetry is how often a kind that the server does not have is retried: its CRD may be installed later.
const missingRetry = 30 * time.Second

// missingRetryMin is the minimum for kinds of policies, to which each node of the cluster adds missingRetryPerNode.
const missingRetryMin, missingRetryPerNode = 2 * time.Second, 10 * time.Millisecond

// Watch watches the objects of facts: the node's pods, all nodes, namespaces and networks. The snapshot is sent first,
// so with one Synced does not wait for the server. It must be called once.
func (s *Store) Watch(ctx context.Context) (<-chan store.Event, error) {
	var caches []*objectCache
	for _, kind := range s.factKinds() {
		caches = append(caches, s.cache(kind))
	}
	return s.follow(ctx, s.reduceFact, s.notifySave, caches...), nil
}

// follow starts a watch that fills the caches. changed is called after each change.
func (s *Store) follow(ctx context.Context, keep reduce, changed func(), caches ...*objectCache) <-chan store.Event {
	f := &feed{ctx: ctx, out: make(chan store.Event), waiting: map[string]bool{}}
	for _, sh := range caches {
		f.waiting[qualified(sh.kind)] = true
		sh.notify = func(e store.Event) { f.send(e); changed() }
		sh.synced = func() { f.filled(sh.kind); changed() } // an archive has a mark of it
	}
	var running sync.WaitGroup
	for _, sh := range caches {
		running.Go(func() {
			for _, o := range sh.all() {
				f.send(store.Event{Type: store.Added, Object: o})
			}
			if sh.hashesOnly {
				s.restoreArchive(sh, func(o store.Object) { f.send(store.Event{Type: store.Added, Object: o}) })
			}
			if sh.restored && (!sh.hashesOnly || sh.early) {
				sh.synced()
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
	waiting map[string]bool // resources that are not complete yet
}

func (f *feed) send(e store.Event) {
	select {
	case f.out <- e:
	case <-f.ctx.Done():
	}
}

// filled records that all objects of a kind were sent, and sends Synced after the last kind.
func (f *feed) filled(kind store.Kind) {
	f.mu.Lock()
	had := f.waiting[qualified(kind)]
	delete(f.waiting, qualified(kind))
	last := had && len(f.waiting) == 0
	f.mu.Unlock()
	if last {
		f.send(store.Event{Type: store.Synced})
	}
}

// reflect keeps a cache in sync with the server until ctx ends.
func (s *Store) reflect(ctx context.Context, sh *objectCache, keep reduce) {
	ctx = klog.NewContext(ctx, logr.Discard()) // outage logs instead
	from := &source{s: s, cache: sh, kind: sh.kind, keep: keep}
	silent := logr.Discard()
	cache.NewReflectorWithOptions(&cache.ListWatch{ListWithContextFunc: from.list, WatchFuncWithContext: from.watch},
		&item{}, sh, cache.ReflectorOptions{
			Logger: &silent, Name: sh.kind.Resource, TypeDescription: sh.kind.Resource,
			Backoff: &wait.Backoff{Duration: backoffFirst, Cap: backoffMax, Factor: 2, Steps: 10, Jitter: 0.5},
		}).RunWithContext(ctx)
}

// source lists and watches one kind.
type source struct {
	s     *Store
	cache *objectCache
	kind  store.Kind
	keep  reduce
	// missingCount counts consecutive responses that the kind does not exist.
	missingCount int
}

func (f *source) request(o metav1.ListOptions) *rest.Request {
	// Without retries of its own: the client retries a connection that ends each second, whatever the gate says.
	r := f.s.clients.work.Get().MaxRetries(0).AbsPath(path(f.kind, "", ""))
	set := func(name, value string) {
		if value != "" {
			r = r.Param(name, value)
		}
	}
	set("fieldSelector", f.cache.fields)
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
	tries, err := f.s.gate.enter(ctx, f.cache.useRestored)
	if err != nil {
		return nil, err
	}
	raw, err := do(ctx, time.Minute, f.request(o))
	f.leave(ctx, tries, err)
	f.s.outage.note(f.kind, err)
	if err == nil {
		f.missingCount = 0
		return newItems(f.kind, raw, f.keep, f.s.cfg.Shared)
	}
	if apierrors.IsNotFound(err) {
		f.handleMissing(ctx)
	} else {
		f.cache.useRestored()
	}
	return nil, err
}

// hasResponded reports whether the server has responded to a request, even by an error. A request that the caller ended
// says nothing about the server.
func hasResponded(ctx context.Context, err error) bool {
	status := apierrors.APIStatus(nil)
	return err == nil || errors.As(err, &status) || ctx.Err() != nil
}

// missingDelay returns the delay before a missing kind is retried. Policies must be enforced soon after their CRD is
// installed, but thousands of nodes must not poll too often.
func (f *source) missingDelay() time.Duration {
	if f.s.cache(f.kind) == f.cache { // of facts
		return missingRetry
	}
	nodes := time.Duration(f.s.cache(store.Nodes()).count())
	return min(max(missingRetryMin, nodes*missingRetryPerNode), missingRetry)
}

// handleMissing handles a response that the kind does not exist. It is trusted after several times only, because a
// starting server may not have loaded its CRDs.
func (f *source) handleMissing(ctx context.Context) {
	const believed = 3
	f.missingCount++
	if f.missingCount < believed && len(f.cache.keys()) > 0 {
		return
	}
	_ = f.cache.Replace(nil, "")
	select {
	case <-f.s.cfg.After(f.missingDelay()):
	case <-ctx.Done():
	}
}

// watch begins a watch. While the server cannot be reached it tries again: with an error the reflector would list
// everything when the server is back, and the watch may continue where the last one ended.
func (f *source) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	for {
		tries, err := f.s.gate.enter(ctx, f.cache.useRestored)
		if err != nil {
			return nil, err
		}
		body, err := f.request(o).Param("watch", "true").Stream(ctx)
		f.leave(ctx, tries, err)
		if !apierrors.IsNotFound(err) {
			f.s.outage.note(f.kind, err)
		}
		if err == nil {
			reporter := apierrors.NewClientErrorReporter(http.StatusInternalServerError, http.MethodGet, "ClientWatchDecoding")
			return watch.NewStreamWatcherWithLogger(logr.Discard(), &frames{
				f.kind, body, json.NewDecoder(body), f.keep, f.s.cfg.Shared,
			}, reporter), nil
		}
		f.cache.useRestored()
		if hasResponded(ctx, err) {
			return nil, err
		}
	}
}

// leave reports a request's outcome to the gate. A server that is starting may refuse requests for some seconds, those
// for CRDs' objects longest: to the one that tries it is not there yet.
func (f *source) leave(ctx context.Context, tries bool, err error) {
	starting := apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err)
	if starting && !tries {
		return
	}
	f.s.gate.leave(tries, hasResponded(ctx, err) && !starting)
}
