// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

// Config configures a Store.
type Config struct {
	Access
	// Node is the node whose pods are watched.
	Node string
	// Pools includes AddressPools and AddressBlocks in the facts.
	Pools bool
	// Dir is the directory of the snapshot; empty: none is written.
	Dir string
	// Flannel is the prefix of flannel's annotations of nodes, which are kept under their default names; empty: none are
	// kept.
	Flannel string
	// Shared, which may be nil, decodes the objects of facts for several stores of one process.
	Shared *Shared
	// Agent is the client's user agent. Component is the source of events; empty means weft.
	Agent, Component string
	Log              *slog.Logger
	Now              func() time.Time
	After            func(time.Duration) <-chan time.Time
}

// Store is one node's view of an API server. Watch fills it, Run performs the asynchronous writes.
type Store struct {
	cfg         Config
	log         *slog.Logger
	clients     clients
	events      *eventRecorder
	annotations *annotationWriter
	outage      outage
	gate        gate
	saving      notify.Chan             // holds a token while the snapshot may be outdated
	caches      map[string]*objectCache // of facts, by resource
}

// Open creates a store with the content of the snapshot. It does not connect to the server yet.
func Open(cfg Config) (*Store, error) {
	if err := model.CheckName("node", cfg.Node); err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, log: cfg.Log.With("component", "kube"), saving: notify.New(), caches: map[string]*objectCache{}}
	s.outage.log, s.gate.after = s.log, cfg.After
	s.events, s.annotations = newEventRecorder(s), newAnnotationWriter(s)
	var err error
	if s.clients, err = cfg.dial(cfg.Agent); err != nil {
		return nil, err
	}
	for _, kind := range s.factKinds() {
		sh := newObjectCache(kind)
		if s.caches[kind.Resource] = sh; kind == store.Nodes() {
			// There may be ten thousand nodes: Watch's receiver has them.
			sh.hashesOnly, sh.hashes, sh.early = true, map[string]uint64{}, true
			sh.archive = newArchive(cfg.Dir, cfg.Node, kind.Resource)
			continue
		}
		if cfg.Shared != nil {
			sh.hashesOnly, sh.hashes = true, map[string]uint64{}
			continue
		}
		s.restore(sh)
	}
	s.gate.nodes = s.cache(store.Nodes()).count
	s.cache(pods()).fields = "spec.nodeName=" + cfg.Node
	s.annotations.restore()
	return s, nil
}

// LogTo sets client-go's logger, which is global to the process.
func LogTo(log *slog.Logger) { klog.SetSlogLogger(log) }

// Run writes annotations, events and the snapshot until ctx ends.
func (s *Store) Run(ctx context.Context) error {
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return s.annotations.run(ctx) })
	parts.Go(func() error { return s.events.run(ctx) })
	parts.Go(func() error { return s.save(ctx) })
	return parts.Wait()
}

// factKinds returns the kinds that facts are made of.
func (s *Store) factKinds() []store.Kind {
	kinds := []store.Kind{store.Nodes(), pods(), namespaces(), store.NetworkAttachments()}
	if s.cfg.Pools {
		kinds = append(kinds, store.AddressPools(), store.AddressBlocks())
	}
	return kinds
}

func pods() store.Kind {
	return store.Kind{Version: "v1", Kind: "Pod", Resource: "pods", Namespaced: true}
}

func namespaces() store.Kind {
	return store.Kind{Version: "v1", Kind: "Namespace", Resource: "namespaces"}
}

// cache returns the cache of a kind of facts.
func (s *Store) cache(kind store.Kind) *objectCache { return s.caches[kind.Resource] }
