// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/flannel"
	"github.com/weft-net/weft/internal/model"
)

// maxRaces bounds how often a subnet is chosen again because another node claimed it first.
const maxRaces = 20

// errRace: another node claimed the subnet first.
var errRace = errors.New("another node claimed it first")

// Request is a node's request for a lease.
type Request struct {
	Conf flannel.NetConf
	// Addrs are the node's public addresses. A lease with one of them is this node's.
	Addrs []netip.Addr
	// Previous are the node's earlier subnets; it gets them again if they are free.
	Previous []netip.Prefix
	// Publish returns what a node with these subnets publishes; had is what it published before, nil if nothing.
	Publish func(name string, subnets []netip.Prefix, had *model.Published) (model.Published, error)
}

// OwnLease is a lease of this node.
type OwnLease struct {
	flannel.Lease
	id      int64
	created int64
}

// Name returns the name of the lease's node in the facts: etcd identifies nodes by their subnets.
func (h OwnLease) Name() string { return nodeName(h.Lease) }

// Acquire acquires a lease: the node's own earlier one, else one of its earlier subnets, else a random one.
func (r *Registry) Acquire(ctx context.Context, req Request) (OwnLease, error) {
	v4, v6, err := req.Conf.Ranges()
	if err != nil {
		return OwnLease{}, err
	}
	for range maxRaces {
		h, err := r.try(ctx, req, v4, v6)
		if !errors.Is(err, errRace) {
			return h, err
		}
	}
	return OwnLease{}, model.Errorf(model.CodeTryAgain, "it is retried", "subnet of %v: %d times in a row %w",
		req.Conf.Networks(), maxRaces, errRace)
}

func (r *Registry) try(ctx context.Context, req Request, v4, v6 flannel.Range) (OwnLease, error) {
	p, err := r.read(ctx)
	if err != nil {
		return OwnLease{}, err
	}
	fits := func(l flannel.Lease) bool { return v4.Holds(l.Subnet) && v6.Holds(l.IPv6Subnet) }
	for _, e := range p.entries {
		if !sharesAddr(e.Published.Addrs, req.Addrs) {
			continue
		}
		if fits(e.Lease) {
			return r.reacquire(ctx, req, e)
		}
		r.log.Warn("lease does not match the network configuration; releasing it", "lease", e.String())
		if err := r.remove(ctx, e.key, e.created); err != nil {
			return OwnLease{}, err
		}
		return OwnLease{}, errRace // read again
	}
	l, err := r.chooseSubnets(req, p, v4, v6)
	if err != nil {
		return OwnLease{}, err
	}
	if l.Published, err = req.Publish(nodeName(l), l.Subnets(), nil); err != nil {
		return OwnLease{}, err
	}
	return r.create(ctx, l)
}

// reacquire takes over an earlier lease of this node.
func (r *Registry) reacquire(ctx context.Context, req Request, e entry) (OwnLease, error) {
	had := e.Published
	published, err := req.Publish(nodeName(e.Lease), e.Subnets(), &had)
	if err != nil {
		return OwnLease{}, err
	}
	h := OwnLease{Lease: e.Lease, id: e.lease, created: e.created}
	h.Published = published
	if e.lease != 0 {
		switch err := r.renewLease(ctx, h.id); {
		case errors.Is(err, errGone): // it has just expired
			return OwnLease{}, errRace
		case err != nil:
			return OwnLease{}, err
		}
	}
	if published.Equal(&had) {
		return h, nil
	}
	return h, r.write(ctx, h)
}

// chooseSubnets chooses subnets: the earlier ones, else random ones among the first free ones.
func (r *Registry) chooseSubnets(req Request, p networkState, v4, v6 flannel.Range) (flannel.Lease, error) {
	var taken []netip.Prefix
	for _, e := range p.entries {
		taken = append(taken, e.Subnets()...)
	}
	free := func(p netip.Prefix) bool { return !slices.ContainsFunc(taken, p.Overlaps) }
	var l, before flannel.Lease
	for _, p := range req.Previous {
		if p = p.Masked(); p.Addr().Is4() {
			before.Subnet = p
		} else {
			before.IPv6Subnet = p
		}
	}
	if len(req.Previous) > 0 && v4.Holds(before.Subnet) && v6.Holds(before.IPv6Subnet) &&
		!slices.ContainsFunc(before.Subnets(), func(p netip.Prefix) bool { return !free(p) }) {
		return before, nil
	}
	if len(req.Previous) > 0 {
		r.log.Warn("the node's earlier subnet is in use by another node, or does not match the network configuration",
			"subnets", fmt.Sprint(req.Previous))
	}
	for _, f := range []struct {
		r    flannel.Range
		into *netip.Prefix
	}{{v4, &l.Subnet}, {v6, &l.IPv6Subnet}} {
		if !f.r.Network.IsValid() {
			continue
		}
		all := f.r.Free(taken)
		if len(all) == 0 {
			return l, model.Errorf(model.CodeExhausted, "delete leases of nodes that are gone, or enlarge the network",
				"network %s: all subnets of length %d from %s to %s are leased", f.r.Network, f.r.Len, f.r.First, f.r.Last)
		}
		*f.into = all[r.cfg.Random(len(all))]
	}
	return l, nil
}

// create claims subnets. Of two overlapping keys the older one is kept.
func (r *Registry) create(ctx context.Context, l flannel.Lease) (OwnLease, error) {
	h := OwnLease{Lease: l}
	err := r.request(ctx, "lease", func(ctx context.Context, c *connection) (err error) {
		if h.id, err = c.grant(ctx, r.cfg.TTL); err != nil {
			return err
		}
		key := r.subnetsKey() + l.Key()
		answer, err := c.txn(ctx, []message{ifCreated(key, 0)}, []message{opPut(put(key, l.Value(), h.id))})
		if err == nil && !answer.succeeded {
			err = errRace
		}
		if err != nil {
			_, _ = c.call(ctx, "Lease/LeaseRevoke", message{}.number(1, h.id)) // else it expires
			return err
		}
		h.created = answer.revision
		return nil
	})
	if err != nil {
		return h, err
	}
	p, err := r.read(ctx)
	if err != nil {
		return h, err
	}
	for _, e := range p.entries {
		if e.key != l.Key() && e.created < h.created && overlap(e.Lease, l) {
			return h, errors.Join(errRace, r.remove(ctx, l.Key(), h.created))
		}
	}
	r.log.Info("subnet is leased", "lease", l.String())
	return h, nil
}

// write writes what the lease publishes.
func (r *Registry) write(ctx context.Context, h OwnLease) error {
	return r.request(ctx, "lease "+h.Key(), func(ctx context.Context, c *connection) error {
		key := r.subnetsKey() + h.Key()
		answer, err := c.txn(ctx, []message{ifCreated(key, h.created)}, []message{opPut(put(key, h.Value(), h.id))})
		if err == nil && !answer.succeeded {
			err = errGone
		}
		return err
	})
}

// remove deletes a key that was not re-created.
func (r *Registry) remove(ctx context.Context, key string, created int64) error {
	return r.request(ctx, "lease "+key, func(ctx context.Context, c *connection) error {
		full := r.subnetsKey() + key
		_, err := c.txn(ctx, []message{ifCreated(full, created)}, []message{opDelete(get(full, false))})
		return err
	})
}

func overlap(a, b flannel.Lease) bool {
	for _, p := range a.Subnets() {
		if slices.ContainsFunc(b.Subnets(), p.Overlaps) {
			return true
		}
	}
	return false
}

func sharesAddr(a, b []netip.Addr) bool {
	return slices.ContainsFunc(a, func(x netip.Addr) bool { return slices.Contains(b, x) })
}
