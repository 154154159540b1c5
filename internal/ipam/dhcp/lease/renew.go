// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/ipam/dhcp/exchange"
	"github.com/weft-net/weft/internal/netns"
)

// RFC 2131, 4.4.5: half of the remaining time, at least a minute. Short leases have a shorter minimum.
const (
	retryLeast     = time.Minute
	retryPart      = 20
	retryLeastEver = time.Second
)

func (c *renewer) log() *slog.Logger {
	return c.k.cfg.Log.With("attachment", c.l.snapshot().key().String())
}

// maintain renews, rebinds or gives up one lease, as its times require.
func (c *renewer) maintain(ctx context.Context, ns *netns.NS, link exchange.Link, g exchange.Grant, confirm bool) {
	l, err := g.Lease()
	now := c.k.cfg.Exchange.Now()
	if err != nil || !confirm && (l.Expire.IsZero() || now.Before(l.Renew) || now.Before(c.next[g.Family])) {
		return
	}
	ctx, end := c.untilDeleted(ctx, ns)
	defer end()
	expired := !l.Expire.IsZero() && !now.Before(l.Expire)
	err = exchange.ErrRefused // an expired lease needs no request
	if !expired {
		var fresh exchange.Grant
		rebind := confirm || !now.Before(l.Rebind)
		if fresh, err = c.renew(ctx, ns, link, g, rebind); err == nil {
			err = c.take(g, l, fresh)
		}
	}
	if errors.Is(err, exchange.ErrRefused) {
		err = c.reacquire(ctx, ns, link, g, l)
	}
	if err == nil || ctx.Err() != nil {
		return
	}
	c.scheduleRetry(g, l)
	if errors.Is(err, errLost) || !l.Expire.IsZero() && !c.k.cfg.Exchange.Now().Before(l.Expire) {
		c.lose(ns, g, l, err)
		return
	}
	c.log().Warn("dhcp client could not renew a lease", "address", l.Address.String(), "expires", l.Expire, "err", err)
}

// untilDeleted returns a context that ends when the namespace is deleted: it lives on while an answer is waited for in
// it. end releases what that needs.
func (c *renewer) untilDeleted(ctx context.Context, ns *netns.NS) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancel(ctx)
	id, err := ns.ID()
	if err != nil {
		return ctx, cancel
	}
	forget := c.k.cfg.Deletions.Add(ns.Path(), id, cancel)
	return ctx, func() { forget(); cancel() }
}

func (c *renewer) renew(
	ctx context.Context, ns *netns.NS, link exchange.Link, g exchange.Grant, rebind bool,
) (exchange.Grant, error) {
	client, err := exchange.Open(ctx, ns, link, g.Family, c.l.snapshot().identity(), c.k.cfg.Exchange)
	if err != nil {
		return g, err
	}
	defer func() { _ = client.Close() }()
	return client.Renew(ctx, g, rebind)
}

// errLost is wrapped when the container loses its address.
var errLost = errors.New("the container cannot keep its address")

// take stores a renewed lease. Another address in it cannot be used.
func (c *renewer) take(g exchange.Grant, old exchange.Lease, fresh exchange.Grant) error {
	l, err := fresh.Lease()
	if err != nil {
		return err
	}
	if l.Address != old.Address {
		return fmt.Errorf("%w %s: the server assigns %s now", errLost, old.Address, l.Address)
	}
	delete(c.next, g.Family)
	err = c.change(func(rec *record) {
		for i := range rec.Grants {
			if rec.Grants[i].Family == g.Family {
				rec.Grants[i] = fresh
			}
		}
	})
	c.log().Debug("lease renewed", "address", l.Address.String(), "expires", l.Expire)
	return err
}

// reacquire requests the old address as a new lease. Another address is released at once.
func (c *renewer) reacquire(
	ctx context.Context, ns *netns.NS, link exchange.Link, g exchange.Grant, old exchange.Lease,
) error {
	w := c.k.cfg.Exchange
	w.ResendTimeout = min(w.ResendTimeout, w.Timeout)
	rec := c.l.snapshot()
	fresh, err := c.k.acquireFamily(ctx, ns, link, rec, g.Family, old.Address.Addr(), w)
	if err != nil {
		return err
	}
	err = c.take(g, old, fresh)
	if !errors.Is(err, errLost) {
		return err
	}
	client, openErr := exchange.Open(ctx, ns, link, g.Family, rec.identity(), c.k.cfg.Exchange)
	if openErr == nil {
		openErr = errors.Join(client.Release(ctx, fresh), client.Close())
	}
	if openErr != nil {
		c.log().Warn("agent could not release the lease at its server", "err", openErr)
	}
	return err
}

// scheduleRetry sets the next try: after half of the remaining time until the next stage.
func (c *renewer) scheduleRetry(g exchange.Grant, l exchange.Lease) {
	now := c.k.cfg.Exchange.Now()
	stage := l.Rebind
	if !now.Before(stage) {
		stage = l.Expire
	}
	least := max(min(retryLeast, l.Expire.Sub(g.Bound)/retryPart), retryLeastEver)
	next := now.Add(max(stage.Sub(now)/2, least))
	for _, at := range []time.Time{l.Rebind, l.Expire} {
		if now.Before(at) && next.After(at) {
			next = at
		}
	}
	c.next[g.Family] = next
}

// lose drops a lease. Without any left, the interface goes down: the server may assign the address to another client.
func (c *renewer) lose(ns *netns.NS, g exchange.Grant, l exchange.Lease, reason error) {
	left := 0
	err := c.change(func(rec *record) {
		rec.Grants = slices.DeleteFunc(rec.Grants, func(o exchange.Grant) bool { return o.Family == g.Family })
		rec.Lost = fmt.Sprintf("%s: %s", l.Address, reason)
		left = len(rec.Grants)
	})
	log := c.log().With("address", l.Address.String(), "reason", reason)
	if err != nil {
		log.Error("agent could not record the loss of a lease", "err", err)
	}
	if left > 0 {
		log.Error("dhcp client lost a lease; the interface keeps its other addresses; DEL and ADD the attachment")
		return
	}
	log.Error("dhcp client lost a lease; the interface goes down; DEL and ADD the attachment")
	if err := exchange.SetUp(ns, c.l.snapshot().IfName, false); err != nil {
		log.Error("agent could not set down an interface without a lease", "err", err)
	}
}

// change changes the record, in memory and on disk.
func (c *renewer) change(f func(*record)) error {
	c.l.mu.Lock()
	f(&c.l.rec)
	rec := c.l.rec.clone()
	c.l.mu.Unlock()
	return c.k.save(rec)
}
