// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"errors"
	"time"

	"github.com/weft-net/weft/internal/ipam/dhcp/exchange"
	"github.com/weft-net/weft/internal/netns"
)

// start keeps a lease from now on.
func (k *Keeper) start(rec record) {
	ctx, stop := context.WithCancel(k.ctx)
	l := &kept{rec: rec, stop: stop, done: make(chan struct{})}
	k.mu.Lock()
	k.leases[rec.key()] = l
	k.mu.Unlock()
	k.wait.Go(func() {
		defer close(l.done)
		defer stop()
		if (&keeping{k: k, l: l, next: map[exchange.Family]time.Time{}}).run(ctx) {
			k.wait.Go(func() { k.gone(l) })
		}
	})
}

// gone forgets a lease whose interface is gone, unless a call does something else with it just now.
func (k *Keeper) gone(l *kept) {
	<-l.done
	key := l.snapshot().key()
	release, err := k.turn(k.ctx, key)
	if err != nil {
		return
	}
	defer release()
	if k.find(key) != l {
		return
	}
	if err := k.drop(k.ctx, l); err != nil {
		k.cfg.Log.Error("lease of a dead attachment stays", "attachment", key.String(), "err", err)
	}
}

// keeping is the care for one lease.
type keeping struct {
	k *Keeper
	l *kept
	// next is when a family whose server was silent is tried again.
	next map[exchange.Family]time.Time
	// missed counts the looks that found no interface; flapped: it was down when last looked at.
	missed  int
	flapped bool
}

// run cares until ctx ends; it returns true when the interface is gone.
func (c *keeping) run(ctx context.Context) (gone bool) {
	for {
		timer := time.NewTimer(c.pause())
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
		}
		ns, err := c.k.place(c.l.snapshot())
		if err == nil {
			gone = c.look(ctx, ns)
			_ = ns.Close()
		} else {
			gone = errors.Is(err, netns.ErrGone)
		}
		if gone {
			return ctx.Err() == nil
		}
	}
}

// pause is how long nothing has to be done.
func (c *keeping) pause() time.Duration {
	rec := c.l.snapshot()
	wait := c.k.cfg.Poll
	now := c.k.cfg.World.Now()
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

// look sees to a lease once.
func (c *keeping) look(ctx context.Context, ns *netns.NS) (gone bool) {
	rec := c.l.snapshot()
	link, err := exchange.FindLink(ns, rec.IfName)
	if errors.Is(err, exchange.ErrNoLink) {
		// Once may be a moment in which somebody renames it.
		c.missed++
		return c.missed > 1
	}
	c.missed = 0
	if err != nil {
		c.log().Warn("interface cannot be looked at", "err", err)
		return false
	}
	if !link.Running {
		c.flapped = true
		return false // nothing can be sent; a lease that expires meanwhile is dealt with when it is back
	}
	confirm := c.flapped // it may be on another wire now
	c.flapped = false
	for _, g := range rec.Grants {
		if ctx.Err() == nil {
			c.tend(ctx, ns, link, g, confirm)
		}
	}
	return false
}
