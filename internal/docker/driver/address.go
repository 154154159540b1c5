// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/docker/cnm"
	"github.com/weft-net/weft/internal/model"
)

// idPrefix begins the names of attachments. The rest is 11 hexadecimal digits, so that link names are short enough.
const idPrefix = "docker-"

// addresses are those of endpoints: each request makes an attachment.
type addresses struct {
	attachments *attachments
	records     *records
	boot        string
	rand        io.Reader
	now         func() time.Time
}

// requestAddress attaches: the address is the attachment's.
func (as *addresses) requestAddress(ctx context.Context, q cnm.RequestAddress) (any, error) {
	p, ok := as.records.pool(q.PoolID)
	if !ok {
		return nil, model.Errorf(model.CodeInvalidConf, "remove the network and create it again", "pool %q is not known", q.PoolID)
	}
	if q.Options[cnm.OptionAddressType] == cnm.OptionGateway {
		return requestGateway(p, q.Address)
	}
	n, ok := as.records.network(p.Network)
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
		return as.requestAddress6(n, p, mac, want)
	}
	id, err := random(as.rand, 6)
	if err != nil {
		return nil, err
	}
	e := endpoint{ID: idPrefix + id[:11], Boot: as.boot, Made: as.now(), Network: n.ID, Pool: p.ID, MAC: mac}
	if err := as.records.putEndpoint(e); err != nil {
		return nil, err
	}
	if err := as.attachments.attach(&e, n, want); err != nil {
		// Nothing is left, unless the agent was too slow: then the DEL is for what it is still doing.
		return nil, errors.Join(err, as.attachments.detach(e))
	}
	_, ok, err = as.records.updateEndpoint(e.ID, func(r *endpoint) { r.Address, r.Offered6 = e.Address, e.Offered6 })
	if err == nil && !ok {
		err = model.Errorf(model.CodeTryAgain, "start the container again",
			"address %s: dockerd did not know the endpoint, so it was undone before the agent had attached it", e.Address.Addr())
	}
	if err != nil {
		return nil, errors.Join(err, as.attachments.detach(e))
	}
	return cnm.Address{Address: e.Address.String()}, nil
}

// requestAddress6 returns the IPv6 address of the attachment that the request for its IPv4 address has made.
func (as *addresses) requestAddress6(n network, p pool, mac string, want netip.Addr) (any, error) {
	waits := func(e endpoint) bool {
		return e.Network == n.ID && e.MAC == mac && e.Endpoint == "" && !e.Address6.IsValid()
	}
	e, ok, err := as.records.updateFirst(func(e endpoint) bool {
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
	if e, ok = find(as.records, as.records.endpoints, waits); ok {
		if e.Offered6.IsValid() {
			err = model.Errorf(model.CodeInvalidConf, "leave it out", "--ip6 %s is not supported", want)
		}
		err = errors.Join(err, as.attachments.detach(e))
	}
	return nil, err
}

// releaseAddress detaches with the endpoint's IPv4 address.
func (as *addresses) releaseAddress(_ context.Context, q cnm.ReleaseAddress) (any, error) {
	p, ok := as.records.pool(q.PoolID)
	if !ok {
		return struct{}{}, nil
	}
	a, err := parseAddr(q.Address)
	if err != nil {
		return nil, err
	}
	if p.V6 {
		_, _, err := as.records.updateFirst(func(e endpoint) bool { return e.has(p.Network, a) },
			func(e *endpoint) { e.Address6 = netip.Prefix{} })
		return struct{}{}, err
	}
	e, ok := as.records.byAddress(p.Network, a)
	if !ok {
		return struct{}{}, nil
	}
	return struct{}{}, as.attachments.detach(e)
}

func parseAddr(text string) (netip.Addr, error) {
	text, _, _ = strings.Cut(text, "/")
	a, err := netip.ParseAddr(text)
	if err != nil {
		return a, model.Errorf(model.CodeInvalidConf, "", "address %q: %w", text, err)
	}
	return a.Unmap(), nil
}
