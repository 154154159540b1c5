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

// races bound how often a subnet is chosen again because another node was faster.
const races = 20

// errRace: another node was faster.
var errRace = errors.New("another node was faster")

// Request is what a node asks for.
type Request struct {
	Conf flannel.NetConf
	// Addrs are the node's public addresses. A lease that bears one of them is this node's.
	Addrs []netip.Addr
	// Previous are the subnets that the node had; it gets them again if they are still free.
	Previous []netip.Prefix
	// Publish says what a node with those subnets publishes; had is what it published before, nil when nothing.
	Publish func(name string, subnets []netip.Prefix, had *model.Published) (model.Published, error)
}

// Held is a lease that this node has.
type Held struct {
	flannel.Lease
	id      int64
	created int64
}

// Name is the name of the node with that lease, in the facts: etcd knows nodes by their subnets.
func (h Held) Name() string { return nodeName(h.Lease) }

// Acquire gets the node a lease: its own from before, else that of the subnets that it had before, else a new one by
// chance.
func (r *Registry) Acquire(ctx context.Context, req Request) (Held, error) {
	v4, v6, err := req.Conf.Ranges()
	if err != nil {
		return Held{}, err
	}
	for range races {
		h, err := r.try(ctx, req, v4, v6)
		if !errors.Is(err, errRace) {
			return h, err
		}
	}
	return Held{}, model.Faultf(model.CodeTryAgain, "it is tried again", "subnet of %v: %d times in a row %w",
		req.Conf.Networks(), races, errRace)
}

func (r *Registry) try(ctx context.Context, req Request, v4, v6 flannel.Range) (Held, error) {
	p, err := r.look(ctx)
	if err != nil {
		return Held{}, err
	}
	fits := func(l flannel.Lease) bool { return v4.Holds(l.Subnet) && v6.Holds(l.IPv6Subnet) }
	for _, e := range p.entries {
		if !sharesAddr(e.Published.Addrs, req.Addrs) {
			continue
		}
		if fits(e.Lease) {
			return r.again(ctx, req, e)
		}
		r.log.Warn("lease is of another configuration; it is given back", "lease", e.String())
		if err := r.remove(ctx, e.key, e.created); err != nil {
			return Held{}, err
		}
		return Held{}, errRace // look again
	}
	l, err := r.choose(req, p, v4, v6)
	if err != nil {
		return Held{}, err
	}
	if l.Published, err = req.Publish(nodeName(l), l.Subnets(), nil); err != nil {
		return Held{}, err
	}
	return r.create(ctx, l)
}

// again takes a lease over that this node had before.
func (r *Registry) again(ctx context.Context, req Request, e entry) (Held, error) {
	had := e.Published
	published, err := req.Publish(nodeName(e.Lease), e.Subnets(), &had)
	if err != nil {
		return Held{}, err
	}
	h := Held{Lease: e.Lease, id: e.lease, created: e.created}
	h.Published = published
	if e.lease != 0 {
		switch err := r.prolong(ctx, h.id); {
		case errors.Is(err, errGone): // it ended this moment
			return Held{}, errRace
		case err != nil:
			return Held{}, err
		}
	}
	if published.Equal(&had) {
		return h, nil
	}
	return h, r.write(ctx, h)
}

// choose finds subnets: those of before, else by chance among the first free ones.
func (r *Registry) choose(req Request, p picture, v4, v6 flannel.Range) (flannel.Lease, error) {
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
		r.log.Warn("the subnet that this node had is another's by now, or of another configuration",
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
			return l, model.Faultf(model.CodeExhausted, "delete leases of nodes that are gone, or enlarge the network",
				"network %s: all subnets of length %d from %s to %s are leased", f.r.Network, f.r.Len, f.r.First, f.r.Last)
		}
		*f.into = all[r.cfg.Random(len(all))]
	}
	return l, nil
}

// create claims subnets. Of two keys that overlap the older one stays.
func (r *Registry) create(ctx context.Context, l flannel.Lease) (Held, error) {
	h := Held{Lease: l}
	err := r.ask(ctx, "lease", func(ctx context.Context, c *connection) (err error) {
		if h.id, err = c.grant(ctx, r.cfg.TTL); err != nil {
			return err
		}
		key := r.subnetsKey() + l.Key()
		answer, err := c.txn(ctx, []message{ifCreated(key, 0)}, []message{opPut(put(key, l.Value(), h.id))})
		if err == nil && !answer.succeeded {
			err = errRace
		}
		if err != nil {
			_, _ = c.call(ctx, "Lease/LeaseRevoke", message{}.number(1, h.id)) // else it ends by itself
			return err
		}
		h.created = answer.revision
		return nil
	})
	if err != nil {
		return h, err
	}
	p, err := r.look(ctx)
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

// write puts what the lease publishes.
func (r *Registry) write(ctx context.Context, h Held) error {
	return r.ask(ctx, "lease "+h.Key(), func(ctx context.Context, c *connection) error {
		key := r.subnetsKey() + h.Key()
		answer, err := c.txn(ctx, []message{ifCreated(key, h.created)}, []message{opPut(put(key, h.Value(), h.id))})
		if err == nil && !answer.succeeded {
			err = errGone
		}
		return err
	})
}

// remove takes a key away that is as it was seen.
func (r *Registry) remove(ctx context.Context, key string, created int64) error {
	return r.ask(ctx, "lease "+key, func(ctx context.Context, c *connection) error {
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
