// SPDX-License-Identifier: Apache-2.0

package nodeipam

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/ipam/audit"
	"github.com/weft-net/weft/internal/ipam/blockreport"
	"github.com/weft-net/weft/internal/ipam/inuse"
)

// compareEvery is how often the node compares its blocks, its ledger and its kernel.
const compareEvery = 10 * time.Minute

// Audit periodically compares the addresses that this node has allocated with its ledger and its kernel, until ctx
// ends.
func (n *Node) Audit(ctx context.Context) error {
	var findings atomic.Int64
	n.cfg.Metrics.Gauge("weft_ipam_node_findings", "Findings of the last audit of this node's blocks, ledger and kernel.",
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
		found, err := n.Compare()
		if err != nil {
			n.cfg.Log.Warn("addresses of this node could not be audited", "err", err)
			continue
		}
		for _, f := range found {
			n.cfg.Log.Warn("audit found an inconsistent address", "object", f.Object, "finding", f.Msg)
		}
		findings.Store(int64(len(found)))
	}
}

// Pooled reports whether this node uses pools.
func (n *Node) Pooled() bool { return n.cfg.Network.FromPools() || n.cfg.Engine.Used() }

// ServesCluster reports whether weft allocates the addresses of the cluster's network. In another vendor's cluster
// network it does not, and does not touch that vendor's pools.
func (n *Node) ServesCluster() bool { return n.cfg.Network.FromPools() || n.cfg.Engine.ServesCluster() }

// Compare returns the differences between this node's block engine, its ledger and its kernel.
func (n *Node) Compare() ([]audit.Finding, error) {
	before := n.cfg.Engine.Allocations()
	records, err := n.cfg.Records.List()
	if err != nil {
		return nil, err
	}
	l := audit.NodeState{Allocations: audit.Allocations{Allocations: before}}
	paths := map[string]bool{}
	for _, rec := range records {
		one := audit.LedgerEntry{AttachmentKey: rec.Key(), Done: rec.Stage == attach.Done, Netns: rec.Request.Netns}
		if rec.Result != nil {
			for _, ip := range rec.Result.IPs {
				one.Addrs = append(one.Addrs, ip.Address.Addr())
			}
		}
		l.Ledger = append(l.Ledger, one)
		paths[one.Netns] = true
	}
	if l.Kernel, l.Gone, err = inuse.Read(paths); err != nil {
		return nil, err
	}
	// A finding must hold before and after: allocations may change during the comparison.
	after := n.cfg.Engine.Allocations()
	l.Held = slices.DeleteFunc(before.Held, func(h blockreport.HeldAddress) bool { return !slices.Contains(after.Held, h) })
	var p audit.Report
	p.Compare(l)
	return p.Findings, nil
}
