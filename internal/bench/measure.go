// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const millis = float64(time.Millisecond)

// fill attaches the pods that stay present while the level is measured.
func (w *world) fill(ctx context.Context, pods int) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for i := range pods {
		g.Go(func() error {
			p, err := w.newPod()
			if err != nil {
				return err
			}
			defer func() { _ = p.ns.Close() }()
			if _, err = w.add(ctx, p, fmt.Sprintf("fill%05d", i)); err != nil {
				return err
			}
			return w.park.add(p.ns.Fd())
		})
	}
	return g.Wait()
}

// cell measures n ADD, CHECK and DEL calls of every implementation in batches. Implementations take turns, in an order
// that changes every round.
func (b *bench) cell(ctx context.Context, worlds []*world, cell Cell) error {
	batches := max(b.cfg.N/cell.Concurrency, 1)
	for range batches {
		for _, i := range b.shuffle(len(worlds)) {
			if err := b.batch(ctx, worlds[i], worlds[i].withNetworks(cell)); err != nil {
				return fmt.Errorf("%s: %w", worlds[i].impl.Name, err)
			}
		}
	}
	return nil
}

func (b *bench) shuffle(n int) []int {
	b.rounds++
	return rand.New(rand.NewPCG(b.cfg.Seed, b.rounds)).Perm(n)
}

// batch runs ADD, CHECK and DEL of as many pods as the cell's concurrency.
func (b *bench) batch(ctx context.Context, w *world, cell Cell) error {
	pods := make([]*pod, cell.Concurrency)
	for i := range pods {
		p, err := w.newPod()
		if err != nil {
			return err
		}
		defer func() { _ = p.ns.Close() }()
		pods[i] = p
	}
	if err := b.phase(w, cell, "add", pods, func(p *pod) (time.Duration, error) {
		return w.add(ctx, p, w.nextID())
	}); err != nil {
		return err
	}
	if err := b.phase(w, cell, "check", pods, func(p *pod) (time.Duration, error) { return w.check(ctx, p) }); err != nil {
		return err
	}
	links, err := w.hostLinks()
	if err != nil {
		return err
	}
	first := time.Time{}
	var once sync.Once
	err = b.phase(w, cell, "del", pods, func(p *pod) (time.Duration, error) {
		took, err := w.del(ctx, p)
		once.Do(func() { first = time.Now() })
		return took, err
	})
	if err != nil {
		return err
	}
	if w.impl.Program != "" {
		return nil // it made none
	}
	return b.awaitLinksGone(w, cell, links-len(pods), first)
}

// phase runs one verb for all pods of a batch concurrently, and records the latency of each call and the CPU time of
// the batch.
func (b *bench) phase(w *world, cell Cell, verb string, pods []*pod, call func(*pod) (time.Duration, error)) error {
	before := w.cpuTime()
	g := errgroup.Group{}
	for _, p := range pods {
		g.Go(func() error {
			took, err := call(p)
			if err != nil {
				return fmt.Errorf("%s: %w", verb, err)
			}
			b.samples.add(w.impl.Name, cell, verb, "ms", float64(took)/millis)
			return nil
		})
	}
	err := g.Wait()
	if w.floor != nil {
		return err // its agent is this process
	}
	b.samples.add(w.impl.Name, cell, verb+"_cpu", "ms", float64(w.cpuTime()-before)/millis/float64(len(pods)))
	return err
}

// hostLinks returns the number of links in the node's namespace.
func (w *world) hostLinks() (int, error) {
	n := 0
	err := w.node.Do(func() error {
		// The changes observed here would interrupt a netlink dump; they do not interrupt a read of this file.
		b, err := os.ReadFile("/proc/thread-self/net/dev")
		n = bytes.Count(b, []byte(":"))
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("links of %s: %w", w.impl.Name, err)
	}
	return n, nil
}

// awaitLinksGone waits until at most want links are left and records the time since the first DEL of the batch
// returned, an upper bound. Polling starts after the last DEL returned, because it would slow the calls down.
func (b *bench) awaitLinksGone(w *world, cell Cell, want int, first time.Time) error {
	for time.Since(first) < 10*time.Second {
		n, err := w.hostLinks()
		if err != nil {
			return err
		}
		if n <= want {
			b.samples.add(w.impl.Name, cell, "gone", "ms", float64(time.Since(first))/millis)
			return nil
		}
		time.Sleep(2 * time.Millisecond)
	}
	return fmt.Errorf("links of %s: still more than %d links 10 s after DEL", w.impl.Name, want)
}

// cycles measures full cycles per second: new namespace, ADD, DEL.
func (b *bench) cycles(ctx context.Context, worlds []*world, cell Cell) error {
	n := max(b.cfg.N/4, cell.Concurrency)
	for range 3 {
		for _, i := range b.shuffle(len(worlds)) {
			w := worlds[i]
			start := time.Now()
			g := errgroup.Group{}
			g.SetLimit(cell.Concurrency)
			for range n {
				g.Go(func() error { return w.cycle(ctx) })
			}
			if err := g.Wait(); err != nil {
				return fmt.Errorf("%s: cycle: %w", w.impl.Name, err)
			}
			b.samples.add(w.impl.Name, w.withNetworks(cell), "cycles", "1/s", float64(n)/time.Since(start).Seconds())
		}
	}
	return nil
}

func (w *world) cycle(ctx context.Context) error {
	p, err := w.newPod()
	if err != nil {
		return err
	}
	defer func() { _ = p.ns.Close() }()
	if _, err := w.add(ctx, p, w.nextID()); err != nil {
		return err
	}
	_, err = w.del(ctx, p)
	return err
}
