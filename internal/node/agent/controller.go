// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"hash/fnv"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/controller"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/ipam/blocks"
	"github.com/weft-net/weft/internal/ipam/inuse"
)

// compareEvery is how often the node compares its blocks, its ledger and its kernel.
const compareEvery = 10 * time.Minute

// keepPools looks after the cluster's pools when it is this node's turn, unless the controller is apart, and compares what this node has
// given.
func (a *agent) keepPools(ctx context.Context) error {
	if a.blocks == nil {
		return nil
	}
	var findings atomic.Int64
	a.metrics.Gauge("weft_node_findings", "What the last comparison of this node's blocks, ledger and kernel found.", func() float64 {
		return float64(findings.Load())
	})
	parts, ctx := errgroup.WithContext(ctx)
	if a.apart() {
		parts.Go(func() error { return ended(ctx, a.watchController(ctx)) })
	} else {
		c := controller.New(controller.Config{
			Objects: a.store.Objects(), Identity: a.cfg.Node, Rank: a.rank, Needed: a.pooled, FollowCalico: a.givesForCluster, Log: a.cfg.Log, Now: a.cfg.Now, After: a.cfg.After,
		})
		controller.Measure(a.metrics, c)
		parts.Go(func() error { return ended(ctx, c.Run(ctx)) })
	}
	parts.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-a.cfg.After(compareEvery):
			}
			if !a.pooled() {
				continue
			}
			n, err := a.compareAddresses()
			if err != nil {
				a.cfg.Log.Warn("addresses of this node cannot be compared", "err", err)
				continue
			}
			findings.Store(int64(n))
		}
	})
	return parts.Wait()
}

// pooled tells whether pools concern this node.
func (a *agent) pooled() bool { return a.fromPools() || a.blocks.Used() }

// givesForCluster tells whether weft gives the addresses of the cluster's network. Over another vendor's it does not, and that one's
// pools are none of its business.
func (a *agent) givesForCluster() bool { return a.fromPools() || a.blocks.ServesCluster() }

// rank is how many nodes come before this one, in an order that is the same everywhere and no name's advantage.
func (a *agent) rank() int {
	hash := func(name string) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(name))
		return h.Sum64()
	}
	me, n := hash(a.cfg.Node), 0
	for name := range a.nodes() {
		if hash(name) < me {
			n++
		}
	}
	return n
}

// compareAddresses counts what does not agree between this node's memory, its ledger and its kernel.
func (a *agent) compareAddresses() (int, error) {
	before := a.blocks.Giving()
	records, err := a.ledger.List()
	if err != nil {
		return 0, err
	}
	l := blocks.Local{Giving: before}
	paths := map[string]bool{}
	for _, rec := range records {
		one := blocks.Recorded{AttachmentKey: rec.Key(), Done: rec.Stage == attach.Done, Netns: rec.Request.Netns}
		if rec.Result != nil {
			for _, ip := range rec.Result.IPs {
				one.Addrs = append(one.Addrs, ip.Address.Addr())
			}
		}
		l.Ledger = append(l.Ledger, one)
		paths[one.Netns] = true
	}
	if l.Kernel, l.Gone, err = inuse.Read(paths); err != nil {
		return 0, err
	}
	// What came or went meanwhile is no finding: both times it must be so.
	after := a.blocks.Giving()
	l.Held = slices.DeleteFunc(before.Held, func(h blocks.HeldAddress) bool { return !slices.Contains(after.Held, h) })
	var p blocks.Picture
	p.Compare(l)
	for _, f := range p.Findings {
		a.cfg.Log.Warn("addresses of this node do not agree", "object", f.Object, "what", f.Msg)
	}
	return len(p.Findings), nil
}
