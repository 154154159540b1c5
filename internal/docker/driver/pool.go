// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/weft-net/weft/internal/docker/cnm"
	"github.com/weft-net/weft/internal/model"
)

// requestPool makes a pool. The same subnet may be that of several networks: the addresses are the cluster's.
func (ns *networks) requestPool(ctx context.Context, q cnm.RequestPool) (any, error) {
	if q.SubPool != "" {
		return nil, model.Errorf(model.CodeInvalidConf, "choose a pool of the cluster by -o pool=NAME",
			"--ip-range %s is not supported", q.SubPool)
	}
	if len(q.Options) > 0 {
		return nil, model.Errorf(model.CodeInvalidConf, "give the options by -o", "--ipam-opt is not supported")
	}
	p := pool{V6: q.V6}
	shown := ns.shownSubnet(ctx, q)
	if q.Pool != "" {
		subnet, err := netip.ParsePrefix(q.Pool)
		if err != nil || subnet.Addr().Is6() != q.V6 {
			return nil, model.Errorf(model.CodeInvalidConf, "", "--subnet %q: not a subnet of its family", q.Pool)
		}
		p.Subnet = subnet.Masked()
		shown = p.Subnet
	}
	id, err := random(ns.rand, 8)
	if err != nil {
		return nil, err
	}
	p.ID = "weft-" + id
	ns.making.Lock() // two pools must not choose one gateway
	defer ns.making.Unlock()
	if p.Gateway, err = ns.freeGateway(q.V6); err != nil {
		return nil, err
	}
	if err := ns.records.putPool(p); err != nil {
		return nil, err
	}
	gateway := netip.PrefixFrom(p.Gateway, p.Gateway.BitLen())
	return cnm.Pool{PoolID: p.ID, Pool: shown.String(), Data: map[string]string{cnm.OptionGateway: gateway.String()}}, nil
}

// shownSubnet returns what dockerd takes for the subnet of a pool: addresses that the user chooses must be in it. A dockerd
// before 28 asks again, without end, as long as a nameserver of the host is in an IPv6 subnet that the user has not chosen; it
// permits the user to choose addresses of a subnet only that he has chosen. So it gets one that has the gateway only.
func (ns *networks) shownSubnet(ctx context.Context, q cnm.RequestPool) netip.Prefix {
	switch {
	case !q.V6:
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	case q.Pool == "" && ns.engine.before28(ctx):
		return netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80}), 64)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// freeGateway returns a link-local address that no pool has as its gateway: a container may be on several networks, and
// a route to the same gateway twice would fail.
func (ns *networks) freeGateway(six bool) (netip.Addr, error) {
	a := netip.AddrFrom4([4]byte{169, 254, 1, 1})
	if six {
		a = netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 14: 1, 15: 1})
	}
	const most = 60_000 // of 169.254.0.0/16, without its last addresses
	for range most {
		b := a.AsSlice()
		last := b[len(b)-1]
		_, taken := find(ns.records, ns.records.pools, func(p pool) bool { return p.Gateway == a })
		if !taken && last != 0 && last != 255 {
			return a, nil
		}
		a = a.Next()
	}
	return a, errors.New("gateway: all link-local addresses are in use by networks")
}

func (ns *networks) releasePool(_ context.Context, q cnm.ReleasePool) (any, error) {
	return struct{}{}, ns.records.dropPool(q.PoolID)
}

// requestGateway returns the pool's gateway. One that the user chose replaces it.
func requestGateway(p pool, asked string) (any, error) {
	if asked != "" {
		a, err := parseAddr(asked)
		if err != nil {
			return nil, err
		}
		if a != p.Gateway {
			return nil, model.Errorf(model.CodeInvalidConf, "leave it out", "--gateway %s: the node is the gateway", a)
		}
	}
	return cnm.Address{Address: netip.PrefixFrom(p.Gateway, p.Gateway.BitLen()).String()}, nil
}

// random returns n bytes of r in hexadecimal digits.
func random(r io.Reader, n int) (string, error) {
	b := make([]byte, n)
	if _, err := r.Read(b); err != nil {
		return "", fmt.Errorf("random number: %w", err)
	}
	return hex.EncodeToString(b), nil
}
