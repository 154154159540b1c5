// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

// TypeCalico is the name of the allocator that chooses among the pools of the cluster's network.
const TypeCalico = "calico-ipam"

// OwnContainer stands in the place of a container's id for what the node itself has, its end of a tunnel.
const OwnContainer = "node"

// Cluster is an engine as the allocator of the cluster's network: it chooses among the network's pools.
type Cluster struct{ Allocator }

// Keys are the options.
func (c *Cluster) Keys() []string {
	return []string{"type", "assign_ipv4", "assign_ipv6", "ipv4_pools[]", "ipv6_pools[]"}
}

// Validate refuses a configuration that can never give an address.
func (c *Cluster) Validate(conf json.RawMessage) error {
	_, err := c.e.chooser.clusterSettings(ipam.Ask{Conf: conf})
	return err
}

// Doubts finds nothing: all that can be said here has an effect.
func (c *Cluster) Doubts(json.RawMessage) []model.Doubt { return nil }

// Add gives an address of each family, all or none.
func (c *Cluster) Add(ctx context.Context, ask ipam.Ask) (model.Result, error) {
	got, err := c.get(ctx, ask)
	return got.result, err
}

// got is what an attachment is given, and as whom.
type got struct {
	result model.Result
	holder holder
	// standby: somebody else has the addresses, and this attachment holds none.
	standby bool
}

// get gives addresses.
func (c *Cluster) get(ctx context.Context, ask ipam.Ask) (g got, err error) {
	conf, err := c.e.chooser.clusterSettings(ask)
	if err == nil {
		err = c.e.chooser.learn(ctx)
	}
	if err != nil {
		return g, err
	}
	if c.e.cfg.Unrouted {
		c.e.unrouted.Do(func() {
			c.e.cfg.Log.Warn(
				"a pod gets an address of the cluster's pools, and no node is told a way there: set network.addresses: pools on all of them",
				"network", ask.Network)
		})
	}
	claim, err := c.e.claims.claimFor(ctx, ask)
	if err != nil {
		return g, err
	}
	g.holder = holder{key: ask.Key(), claim: claim.id}
	if addrs, is := claim.standby(ask); is {
		g.standby = true
		for _, a := range addrs {
			g.result.IPs = append(g.result.IPs, model.IP{Address: netip.PrefixFrom(a, a.BitLen())})
		}
		return g, nil
	}
	wants, err := c.e.chooser.wantsFor(conf, ask, claim)
	if err != nil {
		return g, err
	}
	claim.forClaimed(wants)
	result, h := model.Result{}, g.holder
	for _, alternatives := range wants {
		a, err := c.e.obtainer.takeAny(ctx, alternatives, h)
		if err != nil {
			c.e.mem.unget(result.IPs, h)
			return g, err
		}
		result.IPs = append(result.IPs, model.IP{Address: netip.PrefixFrom(a, a.BitLen())})
	}
	if err := c.e.claims.writeClaim(ctx, claim, result.IPs); err != nil {
		c.e.mem.unget(result.IPs, h)
		return g, err
	}
	g.result = result
	return g, nil
}

// Hold chooses addresses for a record that is written before they are used: an address of this node's blocks has no
// other memory.
func (c *Cluster) Hold(ctx context.Context, ask ipam.Ask) (ipam.Hold, error) {
	g, err := c.get(ctx, ask)
	if err != nil {
		return nil, err
	}
	return &hold{e: c.e, got: g}, nil
}

type hold struct {
	e *Engine
	got
	over bool
}

// Standby tells whether another attachment has the addresses.
func (h *hold) Standby() bool { return h.standby }

// Result is what was chosen.
func (h *hold) Result() model.Result { return h.result }

// Keep has nothing to write: the record does.
func (h *hold) Keep() error {
	h.over = true
	return nil
}

// Drop gives the addresses back, unless they were kept.
func (h *hold) Drop() {
	if !h.over {
		h.over = true
		h.e.mem.unget(h.result.IPs, h.holder)
	}
}

// Del gives back what the attachment has; what another program has given to it, and was reserved for it, is free, too.
func (c *Cluster) Del(ctx context.Context, ask ipam.Ask) error {
	err := c.Allocator.Del(ctx, ask)
	if len(ask.Held) > 0 {
		return err
	}
	c.e.mem.mu.Lock()
	defer c.e.mem.mu.Unlock()
	for name, spec := range c.e.mem.catalog.pools {
		its := func(r model.ReservedAddress) bool {
			return r.By != "" && r.ContainerID == ask.ContainerID && r.IfName == ask.IfName
		}
		if slices.ContainsFunc(spec.Reserved, its) {
			p := c.e.mem.pool(name)
			p.dropped = append(p.dropped, ask.Key())
			c.e.kick.Notify()
		}
	}
	return err
}

// Check tells whether the attachment has the addresses of prev.
func (c *Cluster) Check(_ context.Context, ask ipam.Ask, prev model.Result) error {
	if err := c.Validate(ask.Conf); err != nil || ask.Standby {
		return err
	}
	key := ask.Key()
	for _, ip := range prev.IPs {
		held := c.e.mem.heldBy(func(h holder, _ netip.Addr) bool { return h.key == key }, []netip.Addr{ip.Address.Addr()})
		if len(held) == 0 {
			return model.Faultf(
				model.CodeDiffers, "the address may be given to somebody else: DEL the attachment and ADD it again",
				"%s: address %s of prevResult is not held for container %s interface %s", c.typ, ip.Address.Addr(),
				ask.ContainerID, ask.IfName)
		}
	}
	return nil
}

// Status tells whether an address of each family could be given, without side effects.
func (c *Cluster) Status(ctx context.Context, ask ipam.Ask) error {
	conf, err := c.e.chooser.clusterSettings(ask)
	if err == nil {
		err = c.e.chooser.learn(ctx)
	}
	if err != nil {
		return err
	}
	wants, err := c.e.chooser.clusterWants(conf, ask)
	if err != nil {
		return err
	}
	for _, alternatives := range wants {
		if err := c.e.status(ctx, settings{wants: alternatives}); err != nil {
			return err
		}
	}
	return nil
}
