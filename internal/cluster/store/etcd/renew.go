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

// errGone: the lease has expired, or its key is another node's.
var errGone = errors.New("the lease is gone")

// ErrLost means that the subnet is another node's by now, and the lease cannot be renewed.
var ErrLost = errors.New("the subnet was leased to another node")

// How often the clocks are checked, and the first and the longest delay of retries.
const (
	clockCheck   = time.Minute
	renewFirst   = time.Second
	renewLongest = 10 * time.Second
)

// grant creates a lease.
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

// renewLease renews a lease for its full lifetime.
func (r *Registry) renewLease(ctx context.Context, id int64) error {
	return r.request(ctx, "lease", func(ctx context.Context, c *connection) error {
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

// LeaseRenewer renews a lease until it is stopped.
type LeaseRenewer struct {
	r      *Registry
	lease  OwnLease
	margin time.Duration
	// published is what the node is to publish from now on; gone: the key was deleted.
	published chan model.Published
	gone      notify.Chan
}

// Renewer returns a LeaseRenewer, which renews the lease when no more than margin is left.
func (r *Registry) Renewer(h OwnLease, margin time.Duration) *LeaseRenewer {
	return &LeaseRenewer{
		r: r, lease: h, margin: min(margin, r.cfg.TTL/2), published: make(chan model.Published, 1), gone: notify.New(),
	}
}

// Publish changes what the node publishes, as soon as possible.
func (k *LeaseRenewer) Publish(p model.Published) {
	select {
	case <-k.published:
	default:
	}
	k.published <- p
}

// KeyGone reports that the key was deleted.
func (k *LeaseRenewer) KeyGone() {
	k.gone.Notify()
}

// clock decides when a lease must be renewed. It uses two clocks: one stops while the host is suspended, the other one
// may be set by the operator. The lease is renewed if either says so, or is implausible.
type clock struct {
	ttl, margin time.Duration
	wall        time.Time // when it was renewed
	awake       time.Duration
}

func (c clock) due(now time.Time) bool {
	passed := now.Round(0).Sub(c.wall)
	return c.awake >= c.ttl-c.margin || passed >= c.ttl-c.margin || passed < 0
}

// Run renews the lease until ctx ends. Its only error is ErrLost.
func (k *LeaseRenewer) Run(ctx context.Context) error {
	c := k.renewed()
	var wait time.Duration
	want := k.lease.Published
	failed, again := "", renewFirst
	for {
		wait = min(clockCheck, max(c.ttl-c.margin-c.awake, time.Millisecond))
		if failed != "" {
			wait = min(wait, again)
		}
		renew := failed != ""
		select {
		case <-ctx.Done():
			return nil
		case want = <-k.published:
		case <-k.gone:
			renew = true
		case <-k.r.cfg.After(wait):
			c.awake += wait
			renew = renew || c.due(k.r.cfg.Now())
		}
		if !renew && want.Equal(&k.lease.Published) {
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
		failed = k.logRenewal(err, failed)
	}
}

func (k *LeaseRenewer) renewed() clock {
	if k.lease.id == 0 { // a reservation: it does not expire
		return clock{ttl: 1000 * TTL, wall: k.r.cfg.Now().Round(0)}
	}
	return clock{ttl: k.r.cfg.TTL, margin: k.margin, wall: k.r.cfg.Now().Round(0)}
}

func (k *LeaseRenewer) logRenewal(err error, before string) string {
	switch {
	case err == nil && before != "":
		k.r.log.Info("lease is renewed again", "lease", k.lease.String())
	case err != nil && err.Error() != before:
		k.r.log.Warn("lease cannot be renewed; retrying", "lease", k.lease.String(), "err", err)
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

// renew renews the lease and writes what is to be published. An expired lease is claimed again.
func (k *LeaseRenewer) renew(ctx context.Context, want model.Published) error {
	h := k.lease
	h.Published = want
	err := error(nil)
	if h.id != 0 {
		err = k.r.renewLease(ctx, h.id)
	}
	if err == nil {
		err = k.r.write(ctx, h)
	}
	if errors.Is(err, errGone) {
		if h, err = k.r.create(ctx, h.Lease); errors.Is(err, errRace) {
			return k.checkLost(ctx, want)
		}
	}
	if err != nil {
		return err
	}
	if !want.Equal(&k.lease.Published) {
		k.r.log.Info("published values of the lease were updated", "lease", h.String(), "addresses", want.Addrs,
			"before", k.lease.Published.Addrs)
	}
	k.lease = h
	return nil
}

// checkLost checks whether the key is another node's. A key that this node has written, in a request without an answer,
// is its own.
func (k *LeaseRenewer) checkLost(ctx context.Context, want model.Published) error {
	p, err := k.r.read(ctx)
	if err != nil {
		return err
	}
	for _, e := range p.entries {
		switch {
		case e.key == k.lease.Key() && sharesAddr(e.Published.Addrs, want.Addrs):
			k.lease.id, k.lease.created = e.lease, e.created
			return errRace // the retry writes it
		case overlap(e.Lease, k.lease.Lease):
			return model.Errorf(model.CodeInUse, "restart to lease another subnet; pods of this node must be re-created",
				"subnet %s: its lease expired, and %s has it now: %w", k.lease.Key(), fmt.Sprint(e.Published.Addrs), ErrLost)
		}
	}
	return errRace
}
