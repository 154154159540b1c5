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

// node is the part of an agent that allocates addresses: an engine and a ledger.
type node struct {
	cfg    Config
	path   string
	engine *blocks.Engine
	alloc  *blocks.Cluster
	ledger *ledger.Ledger
	stop   func()

	mu    sync.Mutex
	owner map[netip.Addr]model.AttachmentKey // of each allocated address
	addr  map[model.AttachmentKey]netip.Addr // of each attachment
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
		owner: map[netip.Addr]model.AttachmentKey{}, addr: map[model.AttachmentKey]netip.Addr{},
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

// measure allocates and releases addresses concurrently.
func (n *node) measure(ctx context.Context, concurrency int, r *Report) error {
	reqs := make([]weftipam.Request, n.cfg.Count)
	for i := range reqs {
		var id [32]byte
		if _, err := rand.Read(id[:]); err != nil {
			return fmt.Errorf("container ID: %w", err)
		}
		reqs[i] = weftipam.Request{Conf: conf("bench"), Network: "bench", ContainerID: hex.EncodeToString(id[:]), IfName: "eth0"}
	}
	if err := n.fill(ctx); err != nil {
		return err
	}
	took, waits, err := n.all(reqs, concurrency, n.add)
	if err != nil {
		return err
	}
	r.add("recorded allocations", concurrency, "1/s", float64(len(reqs))/took.Seconds())
	r.add("one recorded allocation", concurrency, "µs", waits...)
	if err := n.verify(len(reqs)); err != nil {
		return err
	}
	took, _, err = n.all(reqs, concurrency, n.del)
	if err != nil {
		return err
	}
	r.add("recorded releases", concurrency, "1/s", float64(len(reqs))/took.Seconds())
	left, err := n.ledger.Len()
	if err == nil && left != 0 {
		err = fmt.Errorf("%d of %d records are left", left, len(reqs))
	}
	return err
}

// fill claims the blocks in advance, so that the datastore's latency is not measured. It records nothing.
func (n *node) fill(ctx context.Context) error {
	for i := range n.cfg.Count {
		req := weftipam.Request{Conf: conf("bench"), Network: "fill", ContainerID: fmt.Sprint(i), IfName: "eth0"}
		h, err := n.alloc.Reserve(ctx, req)
		if err != nil {
			return err
		}
		defer h.Cancel()
	}
	return nil
}

// all calls do for every request, concurrently.
func (n *node) all(
	reqs []weftipam.Request, concurrency int, do func(weftipam.Request) error,
) (time.Duration, []float64, error) {
	var workers sync.WaitGroup
	errs := make([]error, concurrency)
	waits := make([]float64, len(reqs))
	begin := n.cfg.Now()
	for w := range concurrency {
		workers.Go(func() {
			for i := w; i < len(reqs); i += concurrency {
				before := n.cfg.Now()
				if errs[w] = do(reqs[i]); errs[w] != nil {
					return
				}
				waits[i] = float64(n.cfg.Now().Sub(before).Nanoseconds()) / 1e3
			}
		})
	}
	workers.Wait()
	return n.cfg.Now().Sub(begin), waits, errors.Join(errs...)
}

// add does what package attach does for an address at ADD: reserve, record as pending, commit, record as done.
func (n *node) add(req weftipam.Request) error {
	h, err := n.alloc.Reserve(context.Background(), req)
	if err != nil {
		return err
	}
	defer h.Cancel()
	result := h.Result()
	rec := attach.Record{
		Boot: "bench", Stage: attach.Pending, Serial: n.cfg.Now().UnixNano(),
		Request: model.Request{
			Network: req.Network, ContainerID: req.ContainerID, IfName: req.IfName, Netns: "/var/run/netns/" + req.ContainerID,
		},
		Network: model.Network{
			Name: "bench", CNIVersion: "1.0.0", Plugins: []model.PluginConf{{Type: "calico", Raw: req.Conf}},
		},
		Acts: []attach.Act{{Kind: attach.ActIPAM, IPs: result.IPs}}, Result: &result,
	}
	if err := n.ledger.Put(rec); err != nil {
		return err
	}
	if err := h.Commit(); err != nil {
		return err
	}
	rec.Stage = attach.Done
	if err := n.ledger.Put(rec); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	a := result.IPs[0].Address.Addr()
	if other, duplicate := n.owner[a]; duplicate {
		return fmt.Errorf("address %s was allocated to %s and to %s", a, other, rec.Key())
	}
	n.owner[a], n.addr[rec.Key()] = rec.Key(), a
	return nil
}

// del does what package attach does for an address at DEL: release it and delete its record.
func (n *node) del(req weftipam.Request) error {
	n.mu.Lock()
	req.Held = []netip.Addr{n.addr[req.Key()]}
	n.mu.Unlock()
	if err := n.alloc.Del(context.Background(), req); err != nil {
		return err
	}
	return n.ledger.Delete(req.Key())
}

// verify opens the ledger again and compares it with the allocations.
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
		if n.owner[a] != rec.Key() || rec.Stage != attach.Done {
			return fmt.Errorf("the ledger has address %s for %s (%s), but it was allocated to %s", a, rec.Key(),
				rec.Stage, n.owner[a])
		}
	}
	if len(records) != want || len(n.owner) != want {
		return fmt.Errorf("%d addresses were allocated, %d are recorded, want %d", len(n.owner), len(records), want)
	}
	return nil
}
