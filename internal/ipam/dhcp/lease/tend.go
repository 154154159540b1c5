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

// RFC 2131, 4.4.5: half of what is left, a minute at the least. Short leases have a shorter minute.
const (
	retryLeast     = time.Minute
	retryPart      = 20
	retryLeastEver = time.Second
)

func (c *keeping) log() *slog.Logger {
	return c.k.cfg.Log.With("attachment", c.l.snapshot().key().String())
}

// tend does what is due for one lease.
func (c *keeping) tend(ctx context.Context, ns *netns.NS, link exchange.Link, g exchange.Grant, confirm bool) {
	l, err := g.Lease()
	now := c.k.cfg.World.Now()
	if err != nil || !confirm && (l.Expire.IsZero() || now.Before(l.Renew) || now.Before(c.next[g.Family])) {
		return
	}
	expired := !l.Expire.IsZero() && !now.Before(l.Expire)
	err = exchange.ErrRefused // of a lease that is over nobody needs to be asked
	if !expired {
		var fresh exchange.Grant
		rebind := confirm || !now.Before(l.Rebind)
		if fresh, err = c.renew(ctx, ns, link, g, rebind); err == nil {
			err = c.take(g, l, fresh)
		}
	}
	if errors.Is(err, exchange.ErrRefused) {
		err = c.anew(ctx, ns, link, g, l)
	}
	if err == nil || ctx.Err() != nil {
		return
	}
	c.later(g, l)
	if errors.Is(err, errLost) || !l.Expire.IsZero() && !c.k.cfg.World.Now().Before(l.Expire) {
		c.lose(ns, g, l, err)
		return
	}
	c.log().Warn("lease is not renewed", "address", l.Address.String(), "expires", l.Expire, "err", err)
}

func (c *keeping) renew(
	ctx context.Context, ns *netns.NS, link exchange.Link, g exchange.Grant, rebind bool,
) (exchange.Grant, error) {
	client, err := exchange.Open(ctx, ns, link, g.Family, c.l.snapshot().identity(), c.k.cfg.World)
	if err != nil {
		return g, err
	}
	defer func() { _ = client.Close() }()
	return client.Renew(ctx, g, rebind)
}

// errLost is wrapped when the container's address is not its any more.
var errLost = errors.New("the container cannot keep its address")

// take remembers a renewed lease. Another address in it cannot be used.
func (c *keeping) take(g exchange.Grant, old exchange.Lease, fresh exchange.Grant) error {
	l, err := fresh.Lease()
	if err != nil {
		return err
	}
	if l.Address != old.Address {
		return fmt.Errorf("%w %s: the server gives %s now", errLost, old.Address, l.Address)
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

// anew asks for the old address as if it were new. Another one is given back at once.
func (c *keeping) anew(
	ctx context.Context, ns *netns.NS, link exchange.Link, g exchange.Grant, old exchange.Lease,
) error {
	w := c.k.cfg.World
	w.ResendTimeout = min(w.ResendTimeout, w.Timeout)
	rec := c.l.snapshot()
	fresh, err := c.k.one(ctx, ns, link, rec, g.Family, old.Address.Addr(), w)
	if err != nil {
		return err
	}
	err = c.take(g, old, fresh)
	if !errors.Is(err, errLost) {
		return err
	}
	client, openErr := exchange.Open(ctx, ns, link, g.Family, rec.identity(), c.k.cfg.World)
	if openErr == nil {
		openErr = errors.Join(client.Release(ctx, fresh), client.Close())
	}
	if openErr != nil {
		c.log().Warn("the server is not told that its address is free", "err", openErr)
	}
	return err
}

// later sets when a lease is tried again: after half of the time that is left until the next stage.
func (c *keeping) later(g exchange.Grant, l exchange.Lease) {
	now := c.k.cfg.World.Now()
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

// lose gives a lease up. Without any, the interface goes down: its address may be somebody else's.
func (c *keeping) lose(ns *netns.NS, g exchange.Grant, l exchange.Lease, why error) {
	left := 0
	err := c.change(func(rec *record) {
		rec.Grants = slices.DeleteFunc(rec.Grants, func(o exchange.Grant) bool { return o.Family == g.Family })
		rec.Lost = fmt.Sprintf("%s: %s", l.Address, why)
		left = len(rec.Grants)
	})
	log := c.log().With("address", l.Address.String(), "reason", why)
	if err != nil {
		log.Error("loss of a lease is not remembered", "err", err)
	}
	if left > 0 {
		log.Error("lease lost; the interface keeps its other addresses. DEL and ADD the attachment")
		return
	}
	log.Error("lease lost; the interface goes down. DEL and ADD the attachment")
	if err := exchange.SetUp(ns, c.l.snapshot().IfName, false); err != nil {
		log.Error("interface stays up without a lease", "err", err)
	}
}

// change changes the record, in memory and on disk.
func (c *keeping) change(f func(*record)) error {
	c.l.mu.Lock()
	f(&c.l.rec)
	rec := c.l.rec.clone()
	c.l.mu.Unlock()
	return c.k.save(rec)
}
