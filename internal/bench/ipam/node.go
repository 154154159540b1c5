// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/endpoint/ledger"
	weftipam "github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/blocks"
	"github.com/weft-net/weft/internal/model"
)

// node is an agent as far as it gives addresses: an engine and a ledger.
type node struct {
	cfg    Config
	path   string
	engine *blocks.Engine
	alloc  *blocks.Cluster
	ledger *ledger.Ledger
	stop   func()
	// given are the answers.
	mu    sync.Mutex
	given map[netip.Addr]model.AttachmentKey
	has   map[model.AttachmentKey]netip.Addr
}

func newNode(ctx context.Context, cfg Config, path string, objects store.Objects) (*node, error) {
	e, err := blocks.Open(blocks.Config{
		Objects: objects, Node: "bench", Dir: filepath.Join(path, "blocks"), Log: cfg.Log, Now: cfg.Now, After: time.After,
		Random: rand.Reader,
	})
	if err != nil {
		return nil, err
	}
	l, err := ledger.Open(filepath.Join(path, "ledger"))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); _ = e.Run(ctx) }()
	n := &node{
		cfg: cfg, path: path, engine: e, ledger: l, stop: func() { cancel(); <-done },
		given: map[netip.Addr]model.AttachmentKey{}, has: map[model.AttachmentKey]netip.Addr{},
	}
	for _, a := range e.Allocators() {
		if c, is := a.(*blocks.Cluster); is {
			n.alloc = c
		}
	}
	return n, nil
}

func (n *node) close() {
	n.stop()
	_ = n.ledger.Close()
}

// measure gives addresses and takes them back, so many at a time.
func (n *node) measure(ctx context.Context, concurrency int, r *Report) error {
	asks := make([]weftipam.Ask, n.cfg.Count)
	for i := range asks {
		var id [32]byte
		if _, err := rand.Read(id[:]); err != nil {
			return fmt.Errorf("container's id: %w", err)
		}
		asks[i] = weftipam.Ask{Conf: conf("bench"), Network: "bench", ContainerID: hex.EncodeToString(id[:]), IfName: "eth0"}
	}
	if err := n.fill(ctx); err != nil {
		return err
	}
	took, waits, err := n.all(asks, concurrency, n.add)
	if err != nil {
		return err
	}
	r.add("recorded allocations", concurrency, "1/s", float64(len(asks))/took.Seconds())
	r.add("one recorded allocation", concurrency, "µs", waits...)
	if err := n.verify(len(asks)); err != nil {
		return err
	}
	took, _, err = n.all(asks, concurrency, n.del)
	if err != nil {
		return err
	}
	r.add("recorded releases", concurrency, "1/s", float64(len(asks))/took.Seconds())
	left, err := n.ledger.Len()
	if err == nil && left != 0 {
		err = fmt.Errorf("%d records are left of %d", left, len(asks))
	}
	return err
}

// fill claims the blocks: how fast that goes is the store's. Nothing is recorded.
func (n *node) fill(ctx context.Context) error {
	for i := range n.cfg.Count {
		ask := weftipam.Ask{Conf: conf("bench"), Network: "fill", ContainerID: fmt.Sprint(i), IfName: "eth0"}
		h, err := n.alloc.Hold(ctx, ask)
		if err != nil {
			return err
		}
		defer h.Drop()
	}
	return nil
}

// all does something with every ask, so many at a time.
func (n *node) all(
	asks []weftipam.Ask, concurrency int, do func(weftipam.Ask) error,
) (time.Duration, []float64, error) {
	var workers sync.WaitGroup
	errs := make([]error, concurrency)
	waits := make([]float64, len(asks))
	begin := n.cfg.Now()
	for w := range concurrency {
		workers.Go(func() {
			for i := w; i < len(asks); i += concurrency {
				before := n.cfg.Now()
				if errs[w] = do(asks[i]); errs[w] != nil {
					return
				}
				waits[i] = float64(n.cfg.Now().Sub(before).Nanoseconds()) / 1e3
			}
		})
	}
	workers.Wait()
	return n.cfg.Now().Sub(begin), waits, errors.Join(errs...)
}

// add is what attach does for an address: chosen, promised, done.
func (n *node) add(ask weftipam.Ask) error {
	h, err := n.alloc.Hold(context.Background(), ask)
	if err != nil {
		return err
	}
	defer h.Drop()
	result := h.Result()
	rec := attach.Record{
		Boot: "bench", Stage: attach.Pending, Serial: n.cfg.Now().UnixNano(),
		Request: model.Request{
			Network: ask.Network, ContainerID: ask.ContainerID, IfName: ask.IfName, Netns: "/var/run/netns/" + ask.ContainerID,
		},
		Network: model.Network{
			Name: "bench", CNIVersion: "1.0.0", Plugins: []model.PluginConf{{Type: "calico", Raw: ask.Conf}},
		},
		Acts: []attach.Act{{Kind: attach.ActIPAM, IPs: result.IPs}}, Result: &result,
	}
	if err := n.ledger.Put(rec); err != nil {
		return err
	}
	if err := h.Keep(); err != nil {
		return err
	}
	rec.Stage = attach.Done
	if err := n.ledger.Put(rec); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	a := result.IPs[0].Address.Addr()
	if was, twice := n.given[a]; twice {
		return fmt.Errorf("address %s was given to %s and to %s", a, was, rec.Key())
	}
	n.given[a], n.has[rec.Key()] = rec.Key(), a
	return nil
}

// del is what attach does for an address at DEL: released, its record gone.
func (n *node) del(ask weftipam.Ask) error {
	n.mu.Lock()
	ask.Held = []netip.Addr{n.has[ask.Key()]}
	n.mu.Unlock()
	if err := n.alloc.Del(context.Background(), ask); err != nil {
		return err
	}
	return n.ledger.Delete(ask.Key())
}

// verify opens the ledger anew: what was answered must be there.
func (n *node) verify(want int) error {
	if err := n.ledger.Close(); err != nil {
		return err
	}
	var err error
	if n.ledger, err = ledger.Open(filepath.Join(n.path, "ledger")); err != nil {
		return err
	}
	records, err := n.ledger.List()
	if err != nil {
		return err
	}
	for _, rec := range records {
		a := rec.Acts[0].IPs[0].Address.Addr()
		if n.given[a] != rec.Key() || rec.Stage != attach.Done {
			return fmt.Errorf("the ledger has address %s for %s (%s), which was given to %s", a, rec.Key(),
				rec.Stage, n.given[a])
		}
	}
	if len(records) != want || len(n.given) != want {
		return fmt.Errorf("%d allocations were answered, %d are recorded, want %d", len(n.given), len(records), want)
	}
	return nil
}
