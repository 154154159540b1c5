// SPDX-License-Identifier: Apache-2.0

// Package nodeipam is the addresses of this node beside what allocates them: what the ledger says of them when the
// agent starts, which networks will need some, whether blocks, ledger and kernel agree, and a list of them for
// operators.
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
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/node/metrics"
	"github.com/weft-net/weft/internal/state"
)

// Records are the attachments that are recorded on this node.
type Records interface {
	List() ([]attach.Record, error)
}

// Config is a Node's.
type Config struct {
	Name    string
	Network config.Network
	// AddressDir is host-local's where a configuration names none; empty is the reference plugin's.
	AddressDir string
	// Engine is nil where there is no place for the cluster's objects.
	Engine  *blocks.Engine
	Records Records
	Facts   *facts.Facts
	// Plugins are the plugin objects of weft's own network whose addresses are of pools.
	Plugins func() []json.RawMessage
	Metrics *metrics.Metrics
	Log     *slog.Logger
	After   func(time.Duration) <-chan time.Time
}

// Node is this node's addresses.
type Node struct{ cfg Config }

// New returns a Node.
func New(cfg Config) *Node { return &Node{cfg} }

// Run has the engine claim, release and answer other nodes, until ctx ends. What pods may ask for is claimed before.
func (n *Node) Run(ctx context.Context) error {
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return n.cfg.Engine.Run(ctx) })
	parts.Go(func() error { return n.expect(ctx) })
	return parts.Wait()
}

// expect tells the engine which networks there are.
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
		confs := append(blocks.Shared(c.Networks), n.cfg.Plugins()...)
		same := slices.EqualFunc(confs, before, func(x, y json.RawMessage) bool { return bytes.Equal(x, y) })
		if same && (len(confs) == 0 || nodes == len(c.Nodes)) {
			continue
		}
		before, nodes = confs, len(c.Nodes)
		n.cfg.Engine.Expect(confs, nodes)
	}
}

// Restore tells the engine what recorded attachments hold. What an earlier boot left is free.
func Restore(e *blocks.Engine, l Records, boot string) error {
	records, err := l.List()
	if err != nil && len(records) == 0 {
		return err
	}
	var asks []ipam.Ask
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
			asks = append(asks, ipam.Ask{
				Conf: rec.Network.Plugins[act.Plugin].Raw, Network: rec.Request.Network,
				ContainerID: rec.Request.ContainerID, IfName: rec.Request.IfName, Held: held,
			})
		}
	}
	e.Restore(context.Background(), asks)
	return nil
}

// Flush has the kernel forget the connections of addresses that pods had.
func Flush(host *kernel.Conn, addrs []netip.Addr) error {
	gone := make(map[netip.Addr]bool, len(addrs))
	for _, addr := range addrs {
		gone[addr] = true
	}
	_, err := host.Cut(func(c state.Connection) bool {
		return gone[c.From.Addr()] || gone[c.To.Addr()] || gone[c.Answers.Addr()] || gone[c.Back.Addr()]
	})
	return err
}
