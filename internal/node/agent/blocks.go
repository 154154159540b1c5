// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/endpoint/ledger"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/blocks"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/hostenv"
	"github.com/weft-net/weft/internal/state"
)

// engine makes the block engine, with what the ledger says of addresses. Without a place for objects there is none, and
// `type: whereabouts` is a program that is executed.
func (a *agent) engine(boot string, objects store.Objects) (*blocks.Engine, error) {
	if objects == nil {
		return nil, nil
	}
	e, err := blocks.Open(blocks.Config{
		Objects: objects, Node: a.cfg.Node, Machine: hostenv.MachineID(a.cfg.Install.HostRoot), Dir: filepath.Join(a.cfg.StateDir, "blocks"), Log: a.cfg.Log,
		Now: a.cfg.Now, After: a.cfg.After, Random: rand.Reader, ReadFile: os.ReadFile,
		Nodes: a.nodes, Labels: a.labels, Flush: a.flush, Unrouted: a.cfg.Network.Addresses != config.AddressesPools,
		MachinesKnown: a.kube != nil, Apart: a.apart(),
	})
	if err != nil {
		return nil, err
	}
	a.measureBlocks(e)
	return e, restore(e, a.ledger, boot)
}

// restore tells the engine what recorded attachments hold. What an earlier boot left is free.
func restore(e *blocks.Engine, l *ledger.Ledger, boot string) error {
	records, err := l.List()
	if err != nil && len(records) == 0 {
		return err
	}
	var asks []ipam.Ask
	for _, rec := range records {
		for _, act := range rec.Acts {
			if act.Kind != attach.ActIPAM || len(act.IPs) == 0 || rec.Boot != boot || rec.Standby || act.Plugin >= len(rec.Network.Plugins) {
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

// nodes are the nodes that have objects, nil before that is known.
func (a *agent) nodes() map[string]bool {
	if a.facts == nil || a.facts.Cluster() == nil {
		return nil
	}
	out := map[string]bool{}
	for _, n := range a.facts.Cluster().Nodes {
		out[n.Name] = true
	}
	return out
}

// labels are this node's labels; false before they are known.
func (a *agent) labels() (map[string]string, bool) {
	if a.facts == nil || a.facts.Cluster() == nil {
		return nil, false
	}
	nodes := a.facts.Cluster().Nodes
	i, found := slices.BinarySearchFunc(nodes, a.cfg.Node, func(n model.Node, name string) int { return strings.Compare(n.Name, name) })
	if !found {
		return nil, false
	}
	return nodes[i].Labels, true
}

// flush has the kernel forget the connections of addresses that pods had.
func (a *agent) flush(_ context.Context, addrs []netip.Addr) error {
	gone := make(map[netip.Addr]bool, len(addrs))
	for _, addr := range addrs {
		gone[addr] = true
	}
	_, err := a.host.Cut(func(c state.Connection) bool {
		return gone[c.From.Addr()] || gone[c.To.Addr()] || gone[c.Answers.Addr()] || gone[c.Back.Addr()]
	})
	return err
}

// share has the engine claim, give back and answer other nodes, until ctx ends. What pods may ask for is claimed before.
func (a *agent) share(ctx context.Context) error {
	if a.blocks == nil {
		return nil
	}
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return ended(ctx, a.blocks.Run(ctx)) })
	parts.Go(func() error {
		changed, cancel := a.facts.Subscribe()
		defer cancel()
		var before []json.RawMessage
		nodes := 0
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
			}
			c := a.facts.Cluster()
			confs := append(blocks.Shared(c.Networks), a.ownPlugins()...)
			same := slices.EqualFunc(confs, before, func(x, y json.RawMessage) bool { return bytes.Equal(x, y) })
			if same && (len(confs) == 0 || nodes == len(c.Nodes)) {
				continue
			}
			before, nodes = confs, len(c.Nodes)
			a.blocks.Expect(confs, nodes)
		}
	})
	return parts.Wait()
}

// objects is where the cluster's objects are, nil when there is no such place.
func (a *agent) objects() store.Objects {
	if a.store == nil {
		return nil
	}
	return a.store.Objects()
}
