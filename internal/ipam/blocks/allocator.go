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

// Allocator is an engine under one of its names.
type Allocator struct {
	e   *Engine
	typ string
}

// Allocators are the engine's names: weft's own, and that of the program whose configurations it takes.
func (e *Engine) Allocators() []ipam.Allocator {
	return []ipam.Allocator{&Allocator{e, TypeWeft}, &Allocator{e, TypeWhereabouts}, &Cluster{Allocator{e, TypeCalico}}}
}

// Readers are the same names for who only checks configurations.
func Readers(readFile func(string) ([]byte, error)) []ipam.Allocator {
	return build(Config{ReadFile: readFile}).Allocators()
}

// Type is the allocator's name.
func (a *Allocator) Type() string { return a.typ }

// Keys are the options.
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

// Validate refuses a configuration that can never give an address.
func (a *Allocator) Validate(conf json.RawMessage) error {
	_, err := a.e.chooser.settings(ipam.Ask{Conf: conf})
	return err
}

// Add gives one address of each range, and the static ones.
func (a *Allocator) Add(ctx context.Context, ask ipam.Ask) (model.Result, error) {
	g, err := a.get(ctx, ask)
	return g.result, err
}

// Hold is Add for a record that is written before the addresses are used.
func (a *Allocator) Hold(ctx context.Context, ask ipam.Ask) (ipam.Hold, error) {
	g, err := a.get(ctx, ask)
	if err != nil {
		return nil, err
	}
	return &hold{e: a.e, got: g}, nil
}

// get gives addresses.
func (a *Allocator) get(ctx context.Context, ask ipam.Ask) (g got, err error) {
	e := a.e
	s, err := e.chooser.settings(ask)
	if err != nil {
		return g, err
	}
	if err := e.obtainer.resolve(ctx, &s); err != nil {
		return g, err
	}
	claim, err := e.claims.claimed(ctx, ask, &s)
	if err != nil {
		return g, err
	}
	if err := s.assign(); err != nil {
		return g, err
	}
	g.result, g.holder = model.Result{Routes: s.routes, DNS: s.dns}, holder{ask.Key(), s.claim}
	g.standby = ask.Incoming && (claim.silent || s.said(claim.object))
	for _, w := range s.wants {
		address := w.addr
		if !g.standby {
			if address, err = e.obtainer.take(ctx, w, g.holder); err != nil {
				e.mem.unget(g.result.IPs, g.holder)
				return g, err
			}
		}
		ip := model.IP{Address: netip.PrefixFrom(address, w.network.Bits())}
		if s.leads(w) {
			ip.Gateway = s.gateway
		}
		g.result.IPs = append(g.result.IPs, ip)
	}
	if !g.standby {
		if err := e.claims.keepClaim(ctx, claim, g.result.IPs); err != nil {
			e.mem.unget(g.result.IPs, g.holder)
			return g, err
		}
	}
	g.result.IPs = append(g.result.IPs, s.static...)
	return g, nil
}

// leads tells whether the gateway is that of a range: of the one that it is in, and of any of its family where it is in
// none.
func (s *settings) leads(w want) bool {
	if !s.gateway.IsValid() || s.gateway.BitLen() != w.network.Addr().BitLen() {
		return false
	}
	inOne := slices.ContainsFunc(s.wants, func(w want) bool { return w.network.Contains(s.gateway) })
	return !inOne || w.network.Contains(s.gateway)
}

// Del gives back what the attachment has. It needs no valid configuration, and no store.
func (a *Allocator) Del(_ context.Context, ask ipam.Ask) error {
	key := ask.Key()
	for poolName, addrs := range a.e.mem.heldBy(func(h holder, addr netip.Addr) bool { return h.key == key }, ask.Held) {
		for _, addr := range addrs {
			a.e.mem.free(poolName, addr, key)
		}
	}
	a.e.mem.settle(func(h holder) bool { return h.key == key })
	a.e.dropForeign(ask)
	return nil
}

// Check tells whether the attachment holds the addresses that prev says.
func (a *Allocator) Check(_ context.Context, ask ipam.Ask, prev model.Result) error {
	s, err := a.e.chooser.settings(ask)
	if err != nil || ask.Standby {
		return err
	}
	key := ask.Key()
	held := a.e.mem.heldBy(func(h holder, _ netip.Addr) bool { return h.key == key }, nil)
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
		return model.Faultf(
			model.CodeDiffers, "the address may be given to somebody else: DEL the attachment and ADD it again",
			"%s: of the addresses of prevResult, %d are held for container %s interface %s, want %d", a.typ, found,
			ask.ContainerID, ask.IfName, wanted)
	}
	return nil
}

// Status tells whether an address can be given, without side effects.
func (a *Allocator) Status(ctx context.Context, ask ipam.Ask) error {
	s, err := a.e.chooser.settings(ask)
	if err != nil {
		return err
	}
	return a.e.status(ctx, s)
}

// GC takes back what belongs to the network and to none of the valid attachments.
func (a *Allocator) GC(_ context.Context, ask ipam.Ask, valid []model.AttachmentKey) error {
	keep := map[model.AttachmentKey]bool{}
	for _, k := range valid {
		k.Network = ask.Network
		keep[k] = true
	}
	stale := func(h holder) bool {
		return h.key.Network == ask.Network && !keep[h.key] && h.key.ContainerID != "" && h.key.ContainerID != OwnContainer
	}
	for poolName, addrs := range a.e.mem.heldBy(func(h holder, _ netip.Addr) bool { return stale(h) }, nil) {
		for _, addr := range addrs {
			a.e.mem.mu.Lock()
			key := a.e.mem.pools[poolName].held[addr].key
			a.e.mem.mu.Unlock()
			a.e.mem.free(poolName, addr, key)
		}
	}
	a.e.mem.settle(stale)
	return nil
}
