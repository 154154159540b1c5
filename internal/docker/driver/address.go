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
	four, _ := as.records.families(n.ID)
	if p.V6 && four {
		return as.requestSecond(n, p, mac, want)
	}
	e := endpoint{Network: n.ID, MAC: mac}
	if p.V6 {
		e.Pool6 = p.ID
	} else {
		e.Pool = p.ID
	}
	e, err := as.attach(e, n, want)
	if err != nil {
		return nil, err
	}
	return cnm.Address{Address: e.address().String()}, nil
}

// attach attaches an endpoint at the addresses that the user has chosen, which are valid ones of want, and records it.
func (as *addresses) attach(e endpoint, n network, want ...netip.Addr) (endpoint, error) {
	id, err := random(as.rand, 6)
	if err != nil {
		return e, err
	}
	e.ID, e.Boot, e.Made = idPrefix+id[:11], as.boot, as.now()
	if err := as.records.putEndpoint(e); err != nil {
		return e, err
	}
	if err := as.attachments.attach(&e, n, want); err != nil {
		// Nothing is left, unless the agent was too slow: then the DEL is for what it is still doing.
		return e, errors.Join(as.records.namedContainer(err), as.attachments.detach(e))
	}
	_, ok, err := as.records.updateEndpoint(e.ID, func(r *endpoint) {
		r.Address, r.Address6, r.Offered6 = e.Address, e.Address6, e.Offered6
	})
	if err == nil && !ok {
		err = model.Errorf(model.CodeTryAgain, "start the container again",
			"address %s: dockerd did not know the endpoint, so it was undone before the agent had attached it", e.address().Addr())
	}
	if err != nil {
		return e, errors.Join(err, as.attachments.detach(e))
	}
	return e, nil
}

// requestSecond returns the IPv6 address of the attachment that the request for its IPv4 address has made. That request
// does not know the address that the user has chosen (--ip6): another attachment with both addresses replaces it then.
// The IPv4 address is cooling down meanwhile: only a request for it gets it. dockerd does not release it if this fails.
func (as *addresses) requestSecond(n network, p pool, mac string, want netip.Addr) (any, error) {
	e, ok, err := as.records.updateFirst(func(e endpoint) bool {
		return e.Network == n.ID && e.MAC == mac && e.Endpoint == "" && e.Address.IsValid() && e.Pool6 == ""
	}, func(e *endpoint) {
		e.Pool6 = p.ID
		if !want.IsValid() || want == e.Offered6.Addr() {
			e.Address6 = e.Offered6
		}
	})
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, model.Errorf(model.CodeTryAgain, "start the container again",
			"IPv6 address: the driver has no attachment of an endpoint with MAC address %s that lacks one", mac)
	case e.Address6.IsValid():
		return cnm.Address{Address: e.Address6.String()}, nil
	}
	if err := as.attachments.detach(e); err != nil {
		return nil, err
	}
	if !want.IsValid() {
		return nil, n.lacks(true)
	}
	was := e.Address
	e, err = as.attach(endpoint{Network: n.ID, MAC: mac, Pool: e.Pool, Pool6: p.ID}, n, was.Addr(), want)
	if err != nil {
		return nil, err
	}
	return cnm.Address{Address: e.Address6.String()}, nil
}

// releaseAddress detaches with the endpoint's IPv4 address, or with its only one.
func (as *addresses) releaseAddress(_ context.Context, q cnm.ReleaseAddress) (any, error) {
	p, ok := as.records.pool(q.PoolID)
	if !ok {
		return struct{}{}, nil
	}
	a, err := parseAddr(q.Address)
	if err != nil {
		return nil, err
	}
	_, second, err := as.records.updateFirst(func(e endpoint) bool {
		return e.has(p.Network, a) && p.V6 && e.Address.IsValid()
	}, func(e *endpoint) { e.Address6, e.Pool6 = netip.Prefix{}, "" })
	if err != nil || second {
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
