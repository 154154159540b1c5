// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"errors"
	"time"

	"github.com/weft-net/weft/internal/ipam/dhcp/exchange"
	"github.com/weft-net/weft/internal/netns"
)

// start starts the renewer of a lease.
func (k *Manager) start(rec record) {
	ctx, stop := context.WithCancel(k.ctx)
	l := &managedLease{rec: rec, stop: stop, done: make(chan struct{})}
	k.mu.Lock()
	k.leases[rec.key()] = l
	k.mu.Unlock()
	k.wait.Go(func() {
		defer close(l.done)
		defer stop()
		if (&renewer{k: k, l: l, next: map[exchange.Family]time.Time{}}).run(ctx) {
			k.wait.Go(func() { k.gone(l) })
		}
	})
}

// gone forgets a lease whose interface is gone, unless a call uses it at this time.
func (k *Manager) gone(l *managedLease) {
	<-l.done
	key := l.snapshot().key()
	release, err := k.lockCalls(k.ctx, key)
	if err != nil {
		return
	}
	defer release()
	if k.find(key) != l {
		return
	}
	if err := k.drop(k.ctx, l); err != nil {
		k.cfg.Log.Error("agent could not remove the lease of a deleted attachment", "attachment", key.String(), "err", err)
	}
}

// renewer renews one lease.
type renewer struct {
	k *Manager
	l *managedLease
	// next is when a family whose server did not answer is tried again.
	next map[exchange.Family]time.Time
	// missed counts the checks that found no interface; flapped: it was down at the last check.
	missed  int
	flapped bool
}

// run renews until ctx ends; it returns true when the interface is gone.
func (c *renewer) run(ctx context.Context) (gone bool) {
	for {
		timer := time.NewTimer(c.pause())
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
		}
		ns, err := c.k.openNamespace(c.l.snapshot())
		if err == nil {
			gone = c.check(ctx, ns)
			_ = ns.Close()
		} else {
			gone = errors.Is(err, netns.ErrGone)
		}
		if gone {
			return ctx.Err() == nil
		}
	}
}

// pause returns the time until the next check.
func (c *renewer) pause() time.Duration {
	rec := c.l.snapshot()
	wait := c.k.cfg.Poll
	now := c.k.cfg.Exchange.Now()
	for _, g := range rec.Grants {
		l, err := g.Lease()
		if err != nil || l.Expire.IsZero() {
			continue
		}
		due := l.Renew
		if next := c.next[g.Family]; next.After(due) {
			due = next
		}
		wait = min(wait, due.Sub(now))
	}
	const least = 10 * time.Millisecond
	return max(wait, least)
}

// check checks a lease and its interface once.
func (c *renewer) check(ctx context.Context, ns *netns.NS) (gone bool) {
	rec := c.l.snapshot()
	link, err := exchange.FindLink(ns, rec.IfName)
	if errors.Is(err, exchange.ErrNoLink) {
		// A single failure may be a rename in progress.
		c.missed++
		return c.missed > 1
	}
	c.missed = 0
	if err != nil {
		c.log().Warn("agent could not read the interface", "err", err)
		return false
	}
	if !link.Running {
		c.flapped = true
		return false // nothing can be sent; an expired lease is handled when the link is back
	}
	confirm := c.flapped // it may be on another network now
	c.flapped = false
	for _, g := range rec.Grants {
		if ctx.Err() == nil {
			c.maintain(ctx, ns, link, g, confirm)
		}
	}
	return false
}
