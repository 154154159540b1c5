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

// Config is a store's.
type Config struct {
	Access
	// Node is the node whose pods are followed.
	Node string
	// Pools has the cluster's pools of addresses, and who has which blocks of them, be facts.
	Pools bool
	// Dir is where the snapshot is kept; empty keeps none.
	Dir string
	// Flannel is what the annotations of nodes begin with by which a flannel cluster knows how they are reached. They are
	// kept, under the names that they have by default; empty: none is.
	Flannel string
	// Agent is how the client calls itself.
	Agent string
	Log   *slog.Logger
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
}

// Store is one node's view of an API server. Watch fills it, Run does what is done behind callers' backs.
type Store struct {
	cfg     Config
	log     *slog.Logger
	clients clients
	events  *postbox
	notes   *notes
	outage  outage
	saving  notify.Chan       // holds a token while the snapshot may be old
	shelfs  map[string]*shelf // of facts, by resource
}

// Open makes a store that knows what the snapshot says. The server is not asked anything yet, and need not be there.
func Open(cfg Config) (*Store, error) {
	if err := model.CheckName("node", cfg.Node); err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, log: cfg.Log.With("room", "kube"), saving: notify.New(), shelfs: map[string]*shelf{}}
	s.outage.log = s.log
	s.events, s.notes = newPostbox(s), newNotes(s)
	var err error
	if s.clients, err = cfg.dial(cfg.Agent); err != nil {
		return nil, err
	}
	for _, kind := range s.factKinds() {
		s.shelfs[kind.Resource] = newShelf(kind)
		s.restore(s.shelfs[kind.Resource])
	}
	s.shelf(pods()).fields = "spec.nodeName=" + cfg.Node
	s.notes.restore()
	return s, nil
}

// LogTo has client-go say what it has to say to log. That is for the whole process: client-go has one logger.
func LogTo(log *slog.Logger) { klog.SetSlogLogger(log) }

// Run writes annotations, events and the snapshot until ctx ends.
func (s *Store) Run(ctx context.Context) error {
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return s.notes.run(ctx) })
	parts.Go(func() error { return s.events.run(ctx) })
	parts.Go(func() error { return s.save(ctx) })
	return parts.Wait()
}

// factKinds are the kinds that facts are made of.
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

// shelf is that of a kind of facts.
func (s *Store) shelf(kind store.Kind) *shelf { return s.shelfs[kind.Resource] }
