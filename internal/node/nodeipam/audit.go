// SPDX-License-Identifier: Apache-2.0

package nodeipam

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/ipam/audit"
	"github.com/weft-net/weft/internal/ipam/blocks"
	"github.com/weft-net/weft/internal/ipam/inuse"
)

// compareEvery is how often the node compares its blocks, its ledger and its kernel.
const compareEvery = 10 * time.Minute

// Audit compares periodically what this node has given with its ledger and its kernel, until ctx ends.
func (n *Node) Audit(ctx context.Context) error {
	var findings atomic.Int64
	n.cfg.Metrics.Gauge("weft_node_findings", "What the last comparison of this node's blocks, ledger and kernel found.",
		func() float64 {
			return float64(findings.Load())
		})
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-n.cfg.After(compareEvery):
		}
		if !n.Pooled() {
			continue
		}
		found, err := n.compare()
		if err != nil {
			n.cfg.Log.Warn("addresses of this node cannot be compared", "err", err)
			continue
		}
		findings.Store(int64(found))
	}
}

// Pooled reports whether pools concern this node.
func (n *Node) Pooled() bool { return n.cfg.Network.FromPools() || n.cfg.Engine.Used() }

// ServesCluster reports whether weft gives the addresses of the cluster's network. Over another vendor's it does not,
// and that one's pools are none of its business.
func (n *Node) ServesCluster() bool { return n.cfg.Network.FromPools() || n.cfg.Engine.ServesCluster() }

// compare counts what does not agree between this node's memory, its ledger and its kernel.
func (n *Node) compare() (int, error) {
	before := n.cfg.Engine.Allocations()
	records, err := n.cfg.Records.List()
	if err != nil {
		return 0, err
	}
	l := audit.Local{Allocations: audit.Allocations{Allocations: before}}
	paths := map[string]bool{}
	for _, rec := range records {
		one := audit.Recorded{AttachmentKey: rec.Key(), Done: rec.Stage == attach.Done, Netns: rec.Request.Netns}
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
	after := n.cfg.Engine.Allocations()
	l.Held = slices.DeleteFunc(before.Held, func(h blocks.HeldAddress) bool { return !slices.Contains(after.Held, h) })
	var p audit.Report
	p.Compare(l)
	for _, f := range p.Findings {
		n.cfg.Log.Warn("addresses of this node do not agree", "object", f.Object, "what", f.Msg)
	}
	return len(p.Findings), nil
}
