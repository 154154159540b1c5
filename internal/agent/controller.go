// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"hash/fnv"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/attach"
	"github.com/weft-net/weft/internal/controller"
	"github.com/weft-net/weft/internal/ipam/blocks"
	"github.com/weft-net/weft/internal/netns"
)

const (
	// compareEvery is how often the node compares its blocks, its ledger and its kernel.
	compareEvery = 10 * time.Minute
	// namedNamespaces is where runtimes keep the namespaces of their pods.
	namedNamespaces = "/run/netns"
)

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
		measureController(a.metrics, c)
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
	if l.Kernel, l.Gone, err = Kernel(paths); err != nil {
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

// Kernel reads the addresses of interfaces in namespaces, those that are named included, and says which are gone.
func Kernel(paths map[string]bool) (seen []blocks.Seen, gone []string, err error) {
	entries, err := os.ReadDir(namedNamespaces)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	for _, e := range entries {
		paths[filepath.Join(namedNamespaces, e.Name())] = true
	}
	for path := range paths {
		if path == "" {
			continue
		}
		have, err := addressesIn(path)
		switch {
		case errors.Is(err, netns.ErrGone), errors.Is(err, fs.ErrNotExist):
			gone = append(gone, path)
		case err != nil:
			return nil, nil, err
		}
		seen = append(seen, have...)
	}
	return seen, gone, nil
}

// addressesIn are the addresses of the interfaces in a namespace.
func addressesIn(path string) ([]blocks.Seen, error) {
	ns, err := netns.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = ns.Close() }()
	var seen []blocks.Seen
	err = ns.Do(func() error {
		links, err := net.Interfaces()
		if err != nil {
			return err
		}
		for _, link := range links {
			addrs, err := link.Addrs()
			if err != nil {
				return err
			}
			for _, addr := range addrs {
				if p, err := netip.ParsePrefix(addr.String()); err == nil {
					seen = append(seen, blocks.Seen{Netns: path, IfName: link.Name, Addr: p.Addr().Unmap()})
				}
			}
		}
		return nil
	})
	return seen, err
}
