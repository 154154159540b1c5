// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/addressclaims"
	"github.com/weft-net/weft/internal/ipam/poolconf"
	"github.com/weft-net/weft/internal/model"
)

// Cluster is an engine as the allocator of the cluster's network: it selects among the network's pools.
type Cluster struct{ Allocator }

// Validate rejects a configuration that can never allocate an address.
func (c *Cluster) Validate(conf json.RawMessage) error {
	_, err := c.e.confs.ClusterSettings(ipam.Request{Conf: conf})
	return err
}

// Warnings returns none: all options have an effect.
func (c *Cluster) Warnings(json.RawMessage) []model.Warning { return nil }

// Add allocates an address of each family, all or none.
func (c *Cluster) Add(ctx context.Context, req ipam.Request) (model.Result, error) {
	got, err := c.get(ctx, req)
	return got.result, err
}

// got is the result for an attachment, and the holder of its addresses.
type got struct {
	result model.Result
	holder holder
	// standby: another attachment has the addresses, and this one holds none.
	standby bool
}

// get allocates addresses.
func (c *Cluster) get(ctx context.Context, req ipam.Request) (g got, err error) {
	conf, err := c.e.confs.ClusterSettings(req)
	if err == nil {
		err = c.e.clusterPools.loadPools(ctx)
	}
	if err != nil {
		return g, err
	}
	if c.e.cfg.Unrouted {
		c.e.unrouted.Do(func() {
			c.e.cfg.Log.Warn(
				"pod has an address of the cluster's pools, and no node has a route to it: set network.addresses: pools on all nodes",
				"network", req.Network)
		})
	}
	claim, err := c.e.claims.ForCluster(ctx, req)
	if err != nil {
		return g, err
	}
	g.holder = holder{key: req.Key(), claim: claim.ID}
	if addrs, is := claim.Standby(req); is {
		g.standby = true
		for _, a := range addrs {
			g.result.IPs = append(g.result.IPs, model.IP{Address: netip.PrefixFrom(a, a.BitLen())})
		}
		return g, nil
	}
	wants, err := c.e.clusterPools.wants(conf, req, claim)
	if err != nil {
		return g, err
	}
	claim.BindWants(wants)
	result, h := model.Result{}, g.holder
	for _, alternatives := range wants {
		a, err := c.e.acquirer.allocateAny(ctx, alternatives, h)
		if err != nil {
			c.e.state.rollback(result.IPs, h)
			return g, err
		}
		result.IPs = append(result.IPs, model.IP{Address: netip.PrefixFrom(a, a.BitLen())})
	}
	if err := c.e.claims.Write(ctx, claim, result.IPs); err != nil {
		c.e.state.rollback(result.IPs, h)
		return g, err
	}
	g.result = result
	return g, nil
}

// Reserve chooses addresses before the caller writes its record: that record is the only one of an address of this
// node's blocks.
func (c *Cluster) Reserve(ctx context.Context, req ipam.Request) (ipam.Reservation, error) {
	g, err := c.get(ctx, req)
	if err != nil {
		return nil, err
	}
	return &reservation{e: c.e, got: g}, nil
}

type reservation struct {
	e *Engine
	got
	over bool
}

// Standby reports whether another attachment has the addresses.
func (h *reservation) Standby() bool { return h.standby }

// Result returns the chosen addresses.
func (h *reservation) Result() model.Result { return h.result }

// Commit writes nothing: the caller's record is enough.
func (h *reservation) Commit() error {
	h.over = true
	return nil
}

// Cancel releases the addresses, unless they were committed.
func (h *reservation) Cancel() {
	if !h.over {
		h.over = true
		h.e.state.rollback(h.result.IPs, h.holder)
	}
}

// Del releases what the attachment has, and the pool's reservations for addresses that another program allocated to it.
func (c *Cluster) Del(ctx context.Context, req ipam.Request) error {
	err := c.Allocator.Del(ctx, req)
	if len(req.Held) > 0 {
		return err
	}
	c.e.state.mu.Lock()
	defer c.e.state.mu.Unlock()
	for _, spec := range c.e.state.catalog.All() {
		its := func(r model.ReservedAddress) bool {
			return r.Source != "" && r.ContainerID == req.ContainerID && r.IfName == req.IfName
		}
		if slices.ContainsFunc(spec.Reserved, its) {
			p := c.e.state.poolLocked(spec.Name)
			p.deleted = append(p.deleted, req.Key())
			c.e.kick.Notify()
		}
	}
	return err
}

// Check reports whether the attachment has the addresses of prev.
func (c *Cluster) Check(_ context.Context, req ipam.Request, prev model.Result) error {
	if err := c.Validate(req.Conf); err != nil || req.Standby {
		return err
	}
	key := req.Key()
	for _, ip := range prev.IPs {
		held := c.e.state.heldBy(func(h holder, _ netip.Addr) bool { return h.key == key }, []netip.Addr{ip.Address.Addr()})
		if len(held) == 0 {
			return model.Errorf(
				model.CodeDiffers, "the address may be allocated again: DEL the attachment and ADD it again",
				"%s: address %s of prevResult is not held for container %s interface %s", c.typ, ip.Address.Addr(),
				req.ContainerID, req.IfName)
		}
	}
	return nil
}

// Status reports whether an address of each family could be allocated, without side effects.
func (c *Cluster) Status(ctx context.Context, req ipam.Request) error {
	conf, err := c.e.confs.ClusterSettings(req)
	if err == nil {
		err = c.e.clusterPools.loadPools(ctx)
	}
	if err != nil {
		return err
	}
	wants, err := c.e.clusterPools.wants(conf, req, addressclaims.Claim{})
	if err != nil {
		return err
	}
	for _, alternatives := range wants {
		if err := c.e.status(ctx, poolconf.Settings{Wants: alternatives}); err != nil {
			return err
		}
	}
	return nil
}
