// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/weft-net/weft/internal/docker/agentapi"
	"github.com/weft-net/weft/internal/docker/cnm"
	"github.com/weft-net/weft/internal/model"
)

// networks are Docker's networks and their pools.
type networks struct {
	agent   *agent
	engine  *engine
	records *records
	rand    io.Reader

	making sync.Mutex // held while a pool chooses its gateway
}

// createNetwork checks the options with the agent, and assigns the pools that have the network's gateways to it.
func (ns *networks) createNetwork(ctx context.Context, q cnm.CreateNetwork) (any, error) {
	o, err := parseOptions(q.Options)
	if err != nil {
		return nil, err
	}
	pools, err := ns.poolsOf(q)
	if err != nil {
		return nil, err
	}
	if err := ns.agent.status(); err != nil {
		return nil, err
	}
	if o.Network != "" {
		if err := ns.agent.network(ctx, o.Network); err != nil {
			return nil, err
		}
	}
	n := network{ID: q.NetworkID, Options: o}
	if o.Network == "" {
		if n, err = ns.choosePools(ctx, n, pools); err != nil {
			return nil, err
		}
	} else if len(o.Pool) > 0 {
		return nil, model.Errorf(model.CodeInvalidConf, "leave one out",
			"option pool: network %s has its own addresses", o.Network)
	}
	for _, p := range pools {
		p.Network = q.NetworkID
		if err := ns.records.putPool(p); err != nil {
			return nil, err
		}
	}
	return struct{}{}, ns.records.putNetwork(n)
}

// poolsOf returns the pools of a network: those with its gateways.
func (ns *networks) poolsOf(q cnm.CreateNetwork) ([]pool, error) {
	var all []pool
	for _, data := range slices.Concat(q.IPv4Data, q.IPv6Data) {
		gateway, err := netip.ParsePrefix(data.Gateway)
		p, ok := find(ns.records, ns.records.pools, func(p pool) bool {
			return p.Gateway == gateway.Addr() && (p.Network == "" || p.Network == q.NetworkID)
		})
		if err != nil || !ok {
			return nil, model.Errorf(model.CodeInvalidConf, "add --ipam-driver with this driver's name",
				"gateway %q: the addresses are not from this driver's IPAM", data.Gateway)
		}
		if len(data.AuxAddresses) > 0 {
			return nil, model.Errorf(model.CodeInvalidConf, "create an IPReservation for them",
				"--aux-address is not supported")
		}
		all = append(all, p)
	}
	if len(all) == 0 {
		return nil, model.Errorf(model.CodeInvalidConf, "leave --ipv4=false out, or add --ipv6", "the network has no addresses")
	}
	return all, nil
}

// choosePools finds the pools of the cluster that the network's addresses are from.
func (ns *networks) choosePools(ctx context.Context, n network, pools []pool) (network, error) {
	var known []agentapi.Pool
	if err := ns.agent.request(ctx, http.MethodGet, agentapi.RoutePools, nil, nil, &known); err != nil {
		return n, err
	}
	names := func(six bool) []string {
		var out []string
		for _, k := range known {
			if k.CIDR.Addr().Is6() == six {
				out = append(out, k.String())
			}
		}
		return out
	}
	has := func(six bool) bool { return slices.ContainsFunc(pools, func(p pool) bool { return p.V6 == six }) }
	for _, six := range []bool{false, true} {
		if has(six) && len(names(six)) == 0 {
			return n, n.lacks(six)
		}
	}
	for _, name := range n.Options.Pool {
		i := slices.IndexFunc(known, func(k agentapi.Pool) bool { return k.Name == name })
		if i < 0 {
			return n, model.Errorf(model.CodeInvalidConf, "the pools are "+strings.Join(append(names(false), names(true)...), ", "),
				"option pool: there is no pool %q for workloads", name)
		}
		six := known[i].CIDR.Addr().Is6()
		if !has(six) {
			return n, model.Errorf(model.CodeInvalidConf, "leave it out, or create the network with both families by --ipv6",
				"option pool: the addresses of %s are of a family that the network does not have", known[i])
		}
		if six {
			n.Pools6 = append(n.Pools6, name)
		} else {
			n.Pools4 = append(n.Pools4, name)
		}
	}
	for _, p := range pools {
		if !p.Subnet.IsValid() {
			continue
		}
		var within []string
		matched := false
		for _, k := range known {
			if p.Subnet.Overlaps(k.CIDR) && p.Subnet.Bits() <= k.CIDR.Bits() {
				matched = true
				if k.Name != "" {
					within = append(within, k.Name)
				}
			}
		}
		if !matched {
			return n, model.Errorf(model.CodeInvalidConf,
				"give the subnet of a pool, or leave it out; the pools are "+strings.Join(names(p.V6), ", "),
				"--subnet %s: it has no whole pool of the cluster in it", p.Subnet)
		}
		if p.V6 && len(n.Pools6) == 0 {
			n.Pools6 = within
		}
		if !p.V6 && len(n.Pools4) == 0 {
			n.Pools4 = within
		}
	}
	for _, k := range known {
		if slices.Contains(n.Pools4, k.Name) || slices.Contains(n.Pools6, k.Name) {
			n.Subnets = append(n.Subnets, k.CIDR)
		}
	}
	return n, nil
}

func (ns *networks) deleteNetwork(_ context.Context, q cnm.DeleteNetwork) (any, error) {
	return struct{}{}, ns.records.dropNetwork(q.NetworkID)
}
