// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/weft-net/weft/internal/docker/cnm"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
)

// idPrefix begins the names of attachments. The rest is 11 hexadecimal digits, so that link names are short enough.
const idPrefix = "docker-"

// annotations of the pod of an attachment.
const (
	annotationMAC     = "cni.projectcalico.org/hwAddr"
	annotationAddrs   = "cni.projectcalico.org/ipAddrs"
	annotationPools4  = "cni.projectcalico.org/ipv4pools"
	annotationPools6  = "cni.projectcalico.org/ipv6pools"
	annotationFamily  = "cni.projectcalico.org/ipFamilies"
	annotationDefault = "v1.multus-cni.io/default-network"
)

// requestPool makes a pool. The same subnet may be that of several networks: the addresses are the cluster's.
func (d *Driver) requestPool(_ context.Context, q cnm.RequestPool) (any, error) {
	if q.SubPool != "" {
		return nil, model.Errorf(model.CodeInvalidConf, "choose a pool of the cluster by -o pool=NAME",
			"--ip-range %s is not supported", q.SubPool)
	}
	if len(q.Options) > 0 {
		return nil, model.Errorf(model.CodeInvalidConf, "give the options by -o", "--ipam-opt is not supported")
	}
	p := pool{V6: q.V6}
	all := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if q.V6 {
		all = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	shown := all
	if q.Pool != "" {
		subnet, err := netip.ParsePrefix(q.Pool)
		if err != nil || subnet.Addr().Is6() != q.V6 {
			return nil, model.Errorf(model.CodeInvalidConf, "", "--subnet %q: not a subnet of its family", q.Pool)
		}
		p.Subnet = subnet.Masked()
		shown = p.Subnet
	}
	id, err := d.random(8)
	if err != nil {
		return nil, err
	}
	p.ID = "weft-" + id
	d.making.Lock() // two pools must not choose one gateway
	defer d.making.Unlock()
	if p.Gateway, err = d.freeGateway(q.V6); err != nil {
		return nil, err
	}
	if err := d.records.putPool(p); err != nil {
		return nil, err
	}
	gateway := netip.PrefixFrom(p.Gateway, p.Gateway.BitLen())
	return cnm.Pool{PoolID: p.ID, Pool: shown.String(), Data: map[string]string{cnm.OptionGateway: gateway.String()}}, nil
}

// freeGateway returns a link-local address that no pool has as its gateway: a container may be on several networks, and
// a route to the same gateway twice would fail.
func (d *Driver) freeGateway(six bool) (netip.Addr, error) {
	a := netip.AddrFrom4([4]byte{169, 254, 1, 1})
	if six {
		a = netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 14: 1, 15: 1})
	}
	const most = 60_000 // of 169.254.0.0/16, without its last addresses
	for range most {
		b := a.AsSlice()
		last := b[len(b)-1]
		_, taken := find(d.records, d.records.pools, func(p pool) bool { return p.Gateway == a })
		if !taken && last != 0 && last != 255 {
			return a, nil
		}
		a = a.Next()
	}
	return a, errors.New("gateway: all link-local addresses are in use by networks")
}

func (d *Driver) releasePool(_ context.Context, q cnm.ReleasePool) (any, error) {
	return struct{}{}, d.records.dropPool(q.PoolID)
}

// requestAddress attaches: the address is the attachment's.
func (d *Driver) requestAddress(ctx context.Context, q cnm.RequestAddress) (any, error) {
	p, ok := d.records.pool(q.PoolID)
	if !ok {
		return nil, model.Errorf(model.CodeInvalidConf, "remove the network and create it again", "pool %q is not known", q.PoolID)
	}
	if q.Options[cnm.OptionAddressType] == cnm.OptionGateway {
		return d.requestGateway(p, q.Address)
	}
	n, ok := d.records.network(p.Network)
	if !ok {
		return nil, model.Errorf(model.CodeInvalidConf, "leave --aux-address out", "pool %q has no network", q.PoolID)
	}
	mac := strings.ToLower(q.Options[cnm.OptionMAC])
	var want netip.Addr
	if q.Address != "" {
		var err error
		if want, err = parseAddr(q.Address); err != nil {
			return nil, err
		}
	}
	if p.V6 {
		return d.requestAddress6(n, p, mac, want)
	}
	id, err := d.random(6)
	if err != nil {
		return nil, err
	}
	e := endpoint{ID: idPrefix + id[:11], Boot: d.boot, Made: d.now(), Network: n.ID, Pool: p.ID, MAC: mac}
	if err := d.records.putEndpoint(e); err != nil {
		return nil, err
	}
	if err := d.attach(&e, n, want); err != nil {
		// Nothing is left, unless the agent was too slow: then the DEL is for what it is still doing.
		return nil, errors.Join(err, d.detach(e))
	}
	_, ok, err = d.records.updateEndpoint(e.ID, func(r *endpoint) { r.Address, r.Offered6 = e.Address, e.Offered6 })
	if err == nil && !ok {
		err = model.Errorf(model.CodeTryAgain, "start the container again",
			"address %s: dockerd did not know the endpoint, so it was undone before the agent had attached it", e.Address.Addr())
	}
	if err != nil {
		return nil, errors.Join(err, d.detach(e))
	}
	return cnm.Address{Address: e.Address.String()}, nil
}

// requestGateway returns the pool's gateway. One that the user chose replaces it.
func (d *Driver) requestGateway(p pool, asked string) (any, error) {
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

// requestAddress6 returns the IPv6 address of the attachment that the request for its IPv4 address has made.
func (d *Driver) requestAddress6(n network, p pool, mac string, want netip.Addr) (any, error) {
	waits := func(e endpoint) bool {
		return e.Network == n.ID && e.MAC == mac && e.Endpoint == "" && !e.Address6.IsValid()
	}
	e, ok, err := d.records.updateFirst(func(e endpoint) bool {
		return waits(e) && e.Offered6.IsValid() && (!want.IsValid() || want == e.Offered6.Addr())
	}, func(e *endpoint) { e.Address6, e.Pool6 = e.Offered6, p.ID })
	if err != nil {
		return nil, err
	}
	if ok {
		return cnm.Address{Address: e.Address6.String()}, nil
	}
	err = model.Errorf(model.CodeInvalidConf, "leave --ipv6 out, or add an IPv6 pool to the cluster",
		"network %s has no IPv6 addresses", n.name())
	// dockerd does not release the IPv4 address that it got before.
	if e, ok = find(d.records, d.records.endpoints, waits); ok {
		if e.Offered6.IsValid() {
			err = model.Errorf(model.CodeInvalidConf, "leave it out", "--ip6 %s is not supported", want)
		}
		err = errors.Join(err, d.detach(e))
	}
	return nil, err
}

// attach makes the attachment in a namespace in which nothing runs.
func (d *Driver) attach(e *endpoint, n network, want netip.Addr) error {
	annotations := map[string]string{}
	if n.Options.Network != "" {
		selection := map[string]any{}
		selection["namespace"], selection["name"], _ = cut(n.Options.Network)
		if e.MAC != "" {
			selection["mac"] = e.MAC
		}
		if want.IsValid() {
			selection["ips"] = []string{want.String()}
		}
		text, err := json.Marshal([]any{selection})
		if err != nil {
			return fmt.Errorf("network %s: %w", n.Options.Network, err)
		}
		annotations[annotationDefault] = string(text)
	}
	lists := map[string][]string{annotationPools4: n.Pools4, annotationPools6: n.Pools6}
	if want.IsValid() {
		lists[annotationAddrs] = []string{want.String()}
		delete(lists, annotationPools4) // the address says which one
		if _, six := find(d.records, d.records.pools, func(p pool) bool { return p.V6 && p.Network == n.ID }); six {
			lists[annotationFamily] = []string{string(model.IPv4), string(model.IPv6)}
		}
	}
	for key, list := range lists {
		if len(list) > 0 {
			text, err := json.Marshal(list)
			if err != nil {
				return fmt.Errorf("annotation %s: %w", key, err)
			}
			annotations[key] = string(text)
		}
	}
	if e.MAC != "" {
		annotations[annotationMAC] = e.MAC
	}
	ns, err := netns.New(d.nsPath(*e))
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	addrs, err := d.agent.add(attachment{
		id: e.ID, namespace: n.Options.Namespace, annotations: annotations, ns: ns, mac: e.MAC,
	})
	if err != nil {
		return err
	}
	for _, a := range addrs {
		switch {
		case a.Addr().Is4() && !e.Address.IsValid():
			e.Address = a
		case a.Addr().Is6() && !e.Offered6.IsValid():
			e.Offered6 = a
		}
	}
	if !e.Address.IsValid() {
		return model.Errorf(model.CodeInvalidConf, "use one with IPv4 addresses", "network %s has no IPv4 addresses", n.name())
	}
	return nil
}

func cut(s string) (a, b string, ok bool) { return strings.Cut(s, "/") }

// name names the network in errors.
func (n network) name() string {
	if n.Options.Network != "" {
		return n.Options.Network
	}
	return "of the cluster"
}

// nsPath is the path of the namespace of an ADD.
func (d *Driver) nsPath(e endpoint) string { return filepath.Join(d.nsDir, e.ID) }

// detach undoes an attachment and forgets it. It is idempotent.
func (d *Driver) detach(e endpoint) error {
	namespace := "default"
	if n, ok := d.records.network(e.Network); ok {
		namespace = n.Options.Namespace
	}
	if err := d.agent.del(e.ID, namespace); err != nil {
		return err
	}
	if err := netns.Remove(d.nsPath(e)); err != nil {
		return err
	}
	return d.records.dropEndpoint(e.ID)
}

// releaseAddress detaches with the endpoint's IPv4 address.
func (d *Driver) releaseAddress(_ context.Context, q cnm.ReleaseAddress) (any, error) {
	p, ok := d.records.pool(q.PoolID)
	if !ok {
		return struct{}{}, nil
	}
	a, err := parseAddr(q.Address)
	if err != nil {
		return nil, err
	}
	if p.V6 {
		_, _, err := d.records.updateFirst(func(e endpoint) bool { return e.has(p.Network, a) },
			func(e *endpoint) { e.Address6 = netip.Prefix{} })
		return struct{}{}, err
	}
	e, ok := d.records.byAddress(p.Network, a)
	if !ok {
		return struct{}{}, nil
	}
	return struct{}{}, d.detach(e)
}

func parseAddr(text string) (netip.Addr, error) {
	text, _, _ = strings.Cut(text, "/")
	a, err := netip.ParseAddr(text)
	if err != nil {
		return a, model.Errorf(model.CodeInvalidConf, "", "address %q: %w", text, err)
	}
	return a.Unmap(), nil
}

// random returns n random bytes in hexadecimal digits.
func (d *Driver) random(n int) (string, error) {
	b := make([]byte, n)
	if _, err := d.rand.Read(b); err != nil {
		return "", fmt.Errorf("random number: %w", err)
	}
	return hex.EncodeToString(b), nil
}
