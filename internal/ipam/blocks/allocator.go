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

// Allocator is an engine under one of its IPAM types.
type Allocator struct {
	e   *Engine
	typ string
}

// Allocators returns the engine under each of its IPAM types: weft's own, whereabouts' and Calico's.
func (e *Engine) Allocators() []ipam.Allocator {
	return []ipam.Allocator{&Allocator{e, TypeWeft}, &Allocator{e, TypeWhereabouts}, &Cluster{Allocator{e, TypeCalico}}}
}

// Readers returns the same types for checking configurations only.
func Readers(readFile func(string) ([]byte, error)) []ipam.Allocator {
	return build(Config{ReadFile: readFile}).Allocators()
}

// Type returns the IPAM type.
func (a *Allocator) Type() string { return a.typ }

// Keys returns the known options.
func (a *Allocator) Keys() []string {
	keys := []string{
		"type", "range", "range_start", "range_end", "exclude[]", "ipRanges[].range", "ipRanges[].range_start",
		"ipRanges[].range_end", "ipRanges[].exclude[]", "gateway", "routes[].dst", "routes[].gw", "routes[].mtu",
		"routes[].advmss", "routes[].priority", "routes[].table", "routes[].scope",
		"dns.nameservers[]", "dns.domain", "dns.search[]", "dns.options[]", "addresses[].address", "addresses[].gateway",
		"enable_overlapping_ranges", "network_name",
	}
	if a.typ == TypeWeft {
		return append(keys, "pool")
	}
	return append(keys, "log_file", "log_level", "configuration_path", "kubernetes.kubeconfig", "kubernetes.k8s_api_root",
		"leader_lease_duration", "leader_renew_deadline", "leader_retry_period", "reconciler_cron_expression",
		"sleep_for_race",
		"node_slice_size", "datastore", "etcd_host", "etcd_username", "etcd_password", "etcd_key_file", "etcd_cert_file",
		"etcd_ca_cert_file")
}

// Validate rejects a configuration that can never allocate an address.
func (a *Allocator) Validate(conf json.RawMessage) error {
	_, err := a.e.poolSelector.settings(ipam.Request{Conf: conf})
	return err
}

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
	s, err := e.poolSelector.settings(req)
	if err != nil {
		return g, err
	}
	if err := e.acquirer.resolve(ctx, &s); err != nil {
		return g, err
	}
	claim, err := e.claims.claimed(ctx, req, &s)
	if err != nil {
		return g, err
	}
	if err := s.assign(); err != nil {
		return g, err
	}
	g.result, g.holder = model.Result{Routes: s.routes, DNS: s.dns}, holder{req.Key(), s.claim}
	g.standby = req.Incoming && (claim.storeSilent || s.namedIn(claim.object))
	for _, w := range s.wants {
		address := w.addr
		if !g.standby {
			if address, err = e.acquirer.allocate(ctx, w, g.holder); err != nil {
				e.state.rollback(g.result.IPs, g.holder)
				return g, err
			}
		}
		ip := model.IP{Address: netip.PrefixFrom(address, w.network.Bits())}
		if s.hasGateway(w) {
			ip.Gateway = s.gateway
		}
		g.result.IPs = append(g.result.IPs, ip)
	}
	if !g.standby {
		if err := e.claims.keepClaim(ctx, claim, g.result.IPs); err != nil {
			e.state.rollback(g.result.IPs, g.holder)
			return g, err
		}
	}
	g.result.IPs = append(g.result.IPs, s.static...)
	return g, nil
}

// hasGateway reports whether the gateway belongs to a range: the one that contains it, or any of its family if none
// does.
func (s *settings) hasGateway(w want) bool {
	if !s.gateway.IsValid() || s.gateway.BitLen() != w.network.Addr().BitLen() {
		return false
	}
	inOne := slices.ContainsFunc(s.wants, func(w want) bool { return w.network.Contains(s.gateway) })
	return !inOne || w.network.Contains(s.gateway)
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
	s, err := a.e.poolSelector.settings(req)
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
	wanted := len(s.wants)
	if s.pool != "" {
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
	s, err := a.e.poolSelector.settings(req)
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
		return h.key.Network == req.Network && !keep[h.key] && h.key.ContainerID != "" && h.key.ContainerID != OwnContainer
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
