// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/cluster/store"
	weftipam "github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/blocks"
	"github.com/weft-net/weft/internal/ipam/poolconf"
)

// claimedSize is the prefix length of the blocks that agents claim: 64 addresses each.
const claimedSize = 26

// meter counts requests to the datastore.
type meter struct {
	store.Objects
	now func() time.Time

	mu        *sync.Mutex
	creates   *[]float64 // latencies of successful claims, in ms
	conflicts *int
	requests  *int
}

func (m meter) count(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	*m.requests++
	if errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrConflict) {
		*m.conflicts++
	}
}

// Create counts the request; of an AddressBlock it is a claim, whose latency is recorded.
func (m meter) Create(ctx context.Context, kind store.Kind, o store.Object) (store.Object, error) {
	begin := m.now()
	got, err := m.Objects.Create(ctx, kind, o)
	m.count(err)
	if err == nil && kind == store.AddressBlocks() {
		m.mu.Lock()
		*m.creates = append(*m.creates, float64(m.now().Sub(begin).Microseconds())/1e3)
		m.mu.Unlock()
	}
	return got, err
}

// CompareAndSwap counts the request.
func (m meter) CompareAndSwap(
	ctx context.Context, kind store.Kind, version string, o store.Object,
) (store.Object, error) {
	got, err := m.Objects.CompareAndSwap(ctx, kind, version, o)
	m.count(err)
	return got, err
}

// Get counts the request.
func (m meter) Get(ctx context.Context, kind store.Kind, key store.Key) (store.Object, error) {
	o, err := m.Objects.Get(ctx, kind, key)
	m.count(nil)
	return o, err
}

// List counts the request.
func (m meter) List(ctx context.Context, kind store.Kind) ([]store.Object, error) {
	all, err := m.Objects.List(ctx, kind)
	m.count(nil)
	return all, err
}

// claims measures block claims of all agents at the same time.
func claims(ctx context.Context, cfg Config, round int, r *Report) error {
	objects, closeStore, err := cfg.Open("bench-0")
	if err != nil {
		return err
	}
	defer func() { _ = closeStore() }()
	pool := name("bench-ipam", cfg.Now())
	o, err := manifest(pool, region, claimedSize)
	if err != nil {
		return err
	}
	if _, err := objects.Create(ctx, store.AddressPools(), o); err != nil {
		return fmt.Errorf("pool: %w", err)
	}
	defer func() { cleanUp(context.WithoutCancel(ctx), cfg, objects, pool) }()
	path, err := os.MkdirTemp(cfg.Dir, "bench-ipam-")
	if err != nil {
		return fmt.Errorf("directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(path) }()
	var mu sync.Mutex
	var creates []float64
	conflicts, requests := 0, 0
	m := meter{now: cfg.Now, mu: &mu, creates: &creates, conflicts: &conflicts, requests: &requests}
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	agents, ctx := errgroup.WithContext(ctx)
	ready.Add(cfg.Agents)
	done.Add(cfg.Agents)
	for i := range cfg.Agents {
		agents.Go(func() error {
			return agent(ctx, cfg, m, filepath.Join(path, fmt.Sprint(i)), fmt.Sprintf("bench-%d-%d", round, i), pool, &ready,
				&done, start)
		})
	}
	ready.Wait()
	begin := cfg.Now()
	close(start)
	done.Wait()
	took := cfg.Now().Sub(begin)
	if err := agents.Wait(); err != nil {
		return err
	}
	r.add("claims of blocks", cfg.Agents, "1/s", float64(len(creates))/took.Seconds())
	r.add("one claim", cfg.Agents, "ms", creates...)
	r.add("claims in a round", cfg.Agents, "", float64(len(creates)))
	r.add("conflicts in a round", cfg.Agents, "", float64(conflicts))
	r.add("requests in a round", cfg.Agents, "", float64(requests))
	return nil
}

// agent allocates addresses until it has claimed its blocks.
func agent(
	ctx context.Context, cfg Config, m meter, dir, node, pool string, ready, done *sync.WaitGroup, start chan struct{},
) error {
	defer done.Done()
	prepare := func() (*blocks.Engine, func() error, error) {
		defer ready.Done()
		objects, end, err := cfg.Open(node)
		if err != nil {
			return nil, nil, err
		}
		m.Objects = objects
		e, err := blocks.Open(blocks.Config{
			Objects: m, Node: node, Dir: dir, Log: cfg.Log, Now: cfg.Now, After: time.After, Random: rand.Reader,
		})
		return e, end, err
	}
	e, end, err := prepare()
	if err != nil {
		return err
	}
	defer func() { _ = end() }()
	run, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = e.Run(run) }()
	defer func() { cancel(); <-ended }()
	var alloc weftipam.Allocator
	for _, a := range e.Allocators() {
		if a.Type() == poolconf.TypeCalico {
			alloc = a
		}
	}
	<-start
	for i := range cfg.Blocks << (32 - claimedSize) {
		req := weftipam.Request{Conf: conf(pool), Network: "bench", ContainerID: fmt.Sprint(i), IfName: "eth0"}
		if _, err := alloc.Add(ctx, req); err != nil {
			return fmt.Errorf("agent %s, address %d: %w", node, i, err)
		}
	}
	return nil
}

// cleanUp deletes the pool and its blocks.
func cleanUp(ctx context.Context, cfg Config, objects store.Objects, pool string) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	all, err := objects.List(ctx, store.AddressBlocks())
	for _, o := range all {
		if b, not := o.AddressBlock(); not == nil && b.Pool == pool {
			err = errors.Join(err, objects.Delete(ctx, store.AddressBlocks(), o.Key, o.Version))
		}
	}
	o, getErr := objects.Get(ctx, store.AddressPools(), store.AddressPools().Key("", pool))
	if err = errors.Join(err, getErr); getErr == nil {
		err = errors.Join(err, objects.Delete(ctx, store.AddressPools(), o.Key, o.Version))
	}
	if err != nil {
		cfg.Log.Warn("deletion of the benchmark's pool failed", "pool", pool, "err", err)
	}
}
