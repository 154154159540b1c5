// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"encoding/json"
	"net/netip"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/blockreport"
	"github.com/weft-net/weft/internal/ipam/poolconf"
	"github.com/weft-net/weft/internal/model"
)

// Allocator is an engine under one of its IPAM types.
type Allocator struct {
	e   *Engine
	typ string
}

// Allocators returns the engine under each of its IPAM types: weft's own, whereabouts' and Calico's.
func (e *Engine) Allocators() []ipam.Allocator {
	return []ipam.Allocator{&Allocator{e, poolconf.TypeWeft}, &Allocator{e, poolconf.TypeWhereabouts}, &Cluster{Allocator{e, poolconf.TypeCalico}}}
}

// Readers returns the same types for checking configurations only.
func Readers(readFile func(string) ([]byte, error)) []ipam.Allocator {
	return build(Config{ReadFile: readFile}).Allocators()
}

// Type returns the IPAM type.
func (a *Allocator) Type() string { return a.typ }

// Keys returns the known options.
func (a *Allocator) Keys() []string { return poolconf.Keys(a.typ) }

// Validate rejects a configuration that can never allocate an address.
func (a *Allocator) Validate(conf json.RawMessage) error {
	_, err := a.e.confs.Settings(ipam.Request{Conf: conf})
	return err
}

// Warnings returns settings that have no effect or a surprising one.
func (a *Allocator) Warnings(conf json.RawMessage) []model.Warning { return a.e.confs.Warnings(conf) }

// Add allocates one address of each range, and the static ones.
func (a *Allocator) Add(ctx context.Context, req ipam.Request) (model.Result, error) {
	g, err := a.get(ctx, req)
	return g.result, err
}

// Reserve is Add for a record that is written before the addresses are used.
func (a *Allocator) Reserve(ctx context.Context, req ipam.Request) (ipam.Reservation, error) {
	g, err := a.get(ctx, req)
	if err != nil {
		return nil, err
	}
	return &reservation{e: a.e, got: g}, nil
}

// get allocates addresses.
func (a *Allocator) get(ctx context.Context, req ipam.Request) (g got, err error) {
	e := a.e
	s, err := e.confs.Settings(req)
	if err != nil {
		return g, err
	}
	if err := e.acquirer.resolve(ctx, &s); err != nil {
		return g, err
	}
	claim, err := e.claims.ForRanges(ctx, req, &s)
	if err != nil {
		return g, err
	}
	if err := s.Assign(); err != nil {
		return g, err
	}
	g.result, g.holder = model.Result{Routes: s.Routes, DNS: s.DNS}, holder{req.Key(), s.Claim}
	g.standby = req.Incoming && (claim.StoreSilent || claim.NamesAll(s.Wants))
	for _, w := range s.Wants {
		address := w.Addr
		if !g.standby {
			if address, err = e.acquirer.allocate(ctx, w, g.holder); err != nil {
				e.state.rollback(g.result.IPs, g.holder)
				return g, err
			}
		}
		ip := model.IP{Address: netip.PrefixFrom(address, w.Network.Bits())}
		if s.HasGateway(w) {
			ip.Gateway = s.Gateway
		}
		g.result.IPs = append(g.result.IPs, ip)
	}
	if !g.standby {
		if err := e.claims.Write(ctx, claim, g.result.IPs); err != nil {
			e.state.rollback(g.result.IPs, g.holder)
			return g, err
		}
	}
	g.result.IPs = append(g.result.IPs, s.Static...)
	return g, nil
}

// Del releases what the attachment has. It needs no valid configuration and no datastore.
func (a *Allocator) Del(_ context.Context, req ipam.Request) error {
	key := req.Key()
	for poolName, addrs := range a.e.state.heldBy(func(h holder, addr netip.Addr) bool { return h.key == key }, req.Held) {
		for _, addr := range addrs {
			a.e.state.release(poolName, addr, key)
		}
	}
	a.e.state.forgetUnknown(func(h holder) bool { return h.key == key })
	a.e.dropForeign(req)
	return nil
}

// Check reports whether the attachment holds the addresses of prev.
func (a *Allocator) Check(_ context.Context, req ipam.Request, prev model.Result) error {
	s, err := a.e.confs.Settings(req)
	if err != nil || req.Standby {
		return err
	}
	key := req.Key()
	held := a.e.state.heldBy(func(h holder, _ netip.Addr) bool { return h.key == key }, nil)
	has := map[netip.Addr]bool{}
	for _, addrs := range held {
		for _, addr := range addrs {
			has[addr] = true
		}
	}
	found := 0
	for _, ip := range prev.IPs {
		if has[ip.Address.Addr()] {
			found++
		}
	}
	wanted := len(s.Wants)
	if s.Pool != "" {
		wanted = 1
	}
	if found < wanted {
		return model.Errorf(
			model.CodeDiffers, "the address may be allocated again: DEL the attachment and ADD it again",
			"%s: of the addresses of prevResult, %d are held for container %s interface %s, want %d", a.typ, found,
			req.ContainerID, req.IfName, wanted)
	}
	return nil
}

// Status reports whether an address can be allocated, without side effects.
func (a *Allocator) Status(ctx context.Context, req ipam.Request) error {
	s, err := a.e.confs.Settings(req)
	if err != nil {
		return err
	}
	return a.e.status(ctx, s)
}

// GC releases what belongs to the network and to none of the valid attachments.
func (a *Allocator) GC(_ context.Context, req ipam.Request, valid []model.AttachmentKey) error {
	keep := map[model.AttachmentKey]bool{}
	for _, k := range valid {
		k.Network = req.Network
		keep[k] = true
	}
	stale := func(h holder) bool {
		return h.key.Network == req.Network && !keep[h.key] && h.key.ContainerID != "" && h.key.ContainerID != blockreport.OwnContainer
	}
	for poolName, addrs := range a.e.state.heldBy(func(h holder, _ netip.Addr) bool { return stale(h) }, nil) {
		for _, addr := range addrs {
			a.e.state.mu.Lock()
			key := a.e.state.pools[poolName].held[addr].key
			a.e.state.mu.Unlock()
			a.e.state.release(poolName, addr, key)
		}
	}
	a.e.state.forgetUnknown(stale)
	return nil
}
