// SPDX-License-Identifier: Apache-2.0

// Package nodeipam manages this node's addresses around the block engine: it restores them from the ledger when the
// agent starts, announces the networks that will need addresses, audits blocks, ledger and kernel, and lists
// allocations for operators.
package nodeipam

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/cluster/facts"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/blocks"
	"github.com/weft-net/weft/internal/ipam/poolconf"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/node/metrics"
	"github.com/weft-net/weft/internal/node/unrecorded"
	"github.com/weft-net/weft/internal/state"
)

// Records lists the attachments that are recorded on this node.
type Records interface {
	List() ([]attach.Record, error)
}

// Config configures a Node.
type Config struct {
	Name    string
	Network config.Network
	// AddressDir is the default directory of host-local; empty is the reference plugin's.
	AddressDir string
	// Engine is nil where there is no datastore for the cluster's objects.
	Engine  *blocks.Engine
	Records Records
	Facts   *facts.Facts
	// Plugins returns the plugin configurations of weft's own network if its addresses are from pools.
	Plugins func() []json.RawMessage
	Metrics *metrics.Metrics
	Log     *slog.Logger
	After   func(time.Duration) <-chan time.Time
}

// Node manages this node's addresses.
type Node struct{ cfg Config }

// New returns a Node.
func New(cfg Config) *Node { return &Node{cfg} }

// Run runs the engine and announces to it which networks pods may request, until ctx ends.
func (n *Node) Run(ctx context.Context) error {
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return n.cfg.Engine.Run(ctx) })
	parts.Go(func() error { return n.expect(ctx) })
	return parts.Wait()
}

// expect passes the networks of the cluster to the engine.
func (n *Node) expect(ctx context.Context) error {
	changed, cancel := n.cfg.Facts.Subscribe()
	defer cancel()
	var before []json.RawMessage
	nodes := 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
		c := n.cfg.Facts.Cluster()
		confs := append(poolconf.Plugins(c.Networks), n.cfg.Plugins()...)
		same := slices.EqualFunc(confs, before, func(x, y json.RawMessage) bool { return bytes.Equal(x, y) })
		if same && (len(confs) == 0 || nodes == len(c.Nodes)) {
			continue
		}
		before, nodes = confs, len(c.Nodes)
		n.cfg.Engine.Expect(confs, nodes)
	}
}

// Restore passes the addresses of recorded attachments to the engine, and those of interfaces whose record is lost.
// Those of an earlier boot are free.
func Restore(e *blocks.Engine, l Records, boot string, lost []unrecorded.Interface) error {
	records, err := l.List()
	if err != nil && len(records) == 0 {
		return err
	}
	var requests []ipam.Request
	for _, rec := range records {
		for _, act := range rec.Acts {
			if act.Kind != attach.ActIPAM || len(act.IPs) == 0 || rec.Boot != boot || rec.Standby ||
				act.Plugin >= len(rec.Network.Plugins) {
				continue
			}
			var held []netip.Addr
			for _, ip := range act.IPs {
				held = append(held, ip.Address.Addr())
			}
			requests = append(requests, ipam.Request{
				Conf: rec.Network.Plugins[act.Plugin].Raw, Network: rec.Request.Network,
				ContainerID: rec.Request.ContainerID, IfName: rec.Request.IfName, Held: held,
			})
		}
	}
	for _, i := range lost {
		// DEL and GC release them by these names, as if there were a record.
		requests = append(requests, ipam.Request{
			Network: i.Attachment.Network, ContainerID: i.Attachment.ContainerID, IfName: i.Attachment.IfName, Held: i.Addrs,
		})
	}
	e.Restore(context.Background(), requests)
	return nil
}

// Flush deletes the conntrack entries of addresses that pods had.
func Flush(host *kernel.Conn, addrs []netip.Addr) error {
	gone := make(map[netip.Addr]bool, len(addrs))
	for _, addr := range addrs {
		gone[addr] = true
	}
	_, err := host.FlushConntrack(func(c state.Connection) bool {
		return gone[c.Src.Addr()] || gone[c.Dst.Addr()] || gone[c.ReplySrc.Addr()] || gone[c.ReplyDst.Addr()]
	})
	return err
}
