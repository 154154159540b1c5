// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

// errGone: the lease has ended, or its key is another's.
var errGone = errors.New("the lease is gone")

// ErrLost tells that the subnet is another node's by now. Nobody can keep it.
var ErrLost = errors.New("the subnet was leased to another node")

// How often the clocks are looked at, and how long a renewal that failed waits, the first time and at most.
const (
	glance       = time.Minute
	renewFirst   = time.Second
	renewLongest = 10 * time.Second
)

// grant makes a lease.
func (c *connection) grant(ctx context.Context, ttl time.Duration) (id int64, err error) {
	answer, err := c.call(ctx, "Lease/LeaseGrant", message{}.number(1, int64(ttl.Seconds())))
	if err != nil {
		return 0, err
	}
	err = read(answer, func(num protowire.Number, n int64, _ []byte) error {
		if num == 2 {
			id = n
		}
		return nil
	})
	return id, err
}

// prolong makes a lease last for its whole time again.
func (r *Registry) prolong(ctx context.Context, id int64) error {
	return r.ask(ctx, "lease", func(ctx context.Context, c *connection) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		s, err := c.stream(ctx, "Lease/LeaseKeepAlive", message{}.number(1, id))
		if err != nil {
			return err
		}
		var answer []byte
		if err := s.RecvMsg(&answer); err != nil {
			return err
		}
		var left int64
		err = read(answer, func(num protowire.Number, n int64, _ []byte) error {
			if num == 3 {
				left = n
			}
			return nil
		})
		if err == nil && left <= 0 {
			err = errGone
		}
		return err
	})
}

// Keeper keeps a lease.
type Keeper struct {
	r      *Registry
	held   Held
	margin time.Duration
	// said is what the node is to publish from now on; gone tells that the key has vanished.
	said chan model.Published
	gone notify.Chan
}

// Keep makes a keeper, which renews the lease when no more than margin is left of it.
func (r *Registry) Keep(h Held, margin time.Duration) *Keeper {
	return &Keeper{
		r: r, held: h, margin: min(margin, r.cfg.TTL/2), said: make(chan model.Published, 1), gone: notify.New(),
	}
}

// Publish has the node publish something else, as soon as possible.
func (k *Keeper) Publish(p model.Published) {
	select {
	case <-k.said:
	default:
	}
	k.said <- p
}

// Gone says that somebody has seen that the key is not there any more.
func (k *Keeper) Gone() {
	k.gone.Notify()
}

// clock tells when a lease is to be renewed. What a lease still lasts is known by two clocks: one stands still while
// the machine sleeps, the other one is set by people. Whichever says that it is time, or talks nonsense, is believed.
type clock struct {
	ttl, margin time.Duration
	wall        time.Time // when it was renewed
	awake       time.Duration
}

func (c clock) due(now time.Time) bool {
	passed := now.Round(0).Sub(c.wall)
	return c.awake >= c.ttl-c.margin || passed >= c.ttl-c.margin || passed < 0
}

// Run keeps the lease until ctx ends. It errs with ErrLost only.
func (k *Keeper) Run(ctx context.Context) error {
	c := k.renewed()
	var wait time.Duration
	want := k.held.Published
	failed, again := "", renewFirst
	for {
		wait = min(glance, max(c.ttl-c.margin-c.awake, time.Millisecond))
		if failed != "" {
			wait = min(wait, again)
		}
		renew := failed != ""
		select {
		case <-ctx.Done():
			return nil
		case want = <-k.said:
		case <-k.gone:
			renew = true
		case <-k.r.cfg.After(wait):
			c.awake += wait
			renew = renew || c.due(k.r.cfg.Now())
		}
		if !renew && want.Equal(&k.held.Published) {
			continue
		}
		err := k.renew(ctx, want)
		if errors.Is(err, ErrLost) {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		if again = min(2*again, renewLongest); err == nil {
			c, again = k.renewed(), renewFirst
		}
		failed = k.tell(err, failed)
	}
}

func (k *Keeper) renewed() clock {
	if k.held.id == 0 { // a reservation: it does not end
		return clock{ttl: 1000 * TTL, wall: k.r.cfg.Now().Round(0)}
	}
	return clock{ttl: k.r.cfg.TTL, margin: k.margin, wall: k.r.cfg.Now().Round(0)}
}

func (k *Keeper) tell(err error, before string) string {
	switch {
	case err == nil && before != "":
		k.r.log.Info("lease is renewed again", "lease", k.held.String())
	case err != nil && err.Error() != before:
		k.r.log.Warn("lease is not renewed; it is tried again", "lease", k.held.String(), "err", err)
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

// renew prolongs the lease and writes what is to be published. A lease that has ended is claimed again.
func (k *Keeper) renew(ctx context.Context, want model.Published) error {
	h := k.held
	h.Published = want
	err := error(nil)
	if h.id != 0 {
		err = k.r.prolong(ctx, h.id)
	}
	if err == nil {
		err = k.r.write(ctx, h)
	}
	if errors.Is(err, errGone) {
		if h, err = k.r.create(ctx, h.Lease); errors.Is(err, errRace) {
			return k.lost(ctx, want)
		}
	}
	if err != nil {
		return err
	}
	if !want.Equal(&k.held.Published) {
		k.r.log.Info("lease is written with what the node publishes now", "lease", h.String(), "addrs", want.Addrs,
			"before", k.held.Published.Addrs)
	}
	k.held = h
	return nil
}

// lost finds out whether the key is another's. One that this node has written, in a request whose answer was lost, is
// its own.
func (k *Keeper) lost(ctx context.Context, want model.Published) error {
	p, err := k.r.look(ctx)
	if err != nil {
		return err
	}
	for _, e := range p.entries {
		switch {
		case e.key == k.held.Key() && sharesAddr(e.Published.Addrs, want.Addrs):
			k.held.id, k.held.created = e.lease, e.created
			return errRace // the next try writes it
		case overlap(e.Lease, k.held.Lease):
			return model.Faultf(model.CodeTaken, "start anew, and another subnet is leased; pods of this node must be made anew",
				"subnet %s: its lease had ended, and now %s has it: %w", k.held.Key(), fmt.Sprint(e.Published.Addrs), ErrLost)
		}
	}
	return errRace
}
