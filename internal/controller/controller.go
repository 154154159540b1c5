// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/audit"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

// Config is a Controller's.
type Config struct {
	Objects store.Objects
	// Identity is this agent's name: no other may use it.
	Identity string
	// Rank tells how many others come before this agent when nobody leads; the first few ask often, all others seldom.
	Rank func() int
	// Needed tells whether there is anything to do here; asked again and again, without cost.
	Needed func() bool
	// Apart: the controller is a program of its own, and agents have no rights to do what it does. It grants what agents
	// ask for about pools, makes Pools where they are missing, and says which nodes are gone.
	Apart bool
	Pools []model.AddressPool
	// Node is the node that this program runs on: where even that one has no object, missing objects of others say
	// nothing.
	Node string
	// FollowCalico tells whether pools are to follow Calico's: weft gives the addresses of the cluster's network. Nil is
	// no.
	FollowCalico func() bool
	Log          *slog.Logger
	Now          func() time.Time
	After        func(time.Duration) <-chan time.Time
	// Every is how often pools are looked at, Check how often everything is compared; 0 means half a minute and ten
	// minutes. Gone is for how long a Node object must have been missing for its blocks to be orphaned; 0 means ten
	// minutes.
	Every, Check, Gone time.Duration
}

const (
	every      = 30 * time.Second
	checkEvery = 10 * time.Minute
	// goneAfter is long enough for a node that is made again.
	goneAfter = 10 * time.Minute
	// soon is when it is tried again after trouble.
	soon = 5 * time.Second
	// seldom is how often an agent asks who leads that is not among the first.
	seldom = 10 * time.Minute
	first  = 5
)

// Controller looks after the cluster's pools while it leads.
type Controller struct {
	cfg   Config
	lease lease

	mu      sync.Mutex
	report  Report
	leading bool
	said    string // the last trouble that was logged
	failed  int    // passes with trouble, one after the other
	checked time.Time
	gone    map[string]time.Time // reservations of pods that are gone, since when
	missed  map[string]time.Time // claims whose virtual machines are gone, since when
	absent  map[string]time.Time // nodes that have blocks and no object, since when
	looked  time.Time            // when nodes were looked at last
	asked   notify.Chan          // agents ask for something
	granted map[string]time.Time // addresses that nodes may take, since when
	// granting: there may be such addresses.
	granting bool
}

// Report is what a controller found last.
type Report struct {
	// Pools are the pools with what is in them.
	Pools []PoolReport
	// Findings are what the last comparison found; Checked is when, zero when there was none.
	Findings []audit.Finding
	Checked  time.Time
}

// PoolReport is one pool in numbers.
type PoolReport struct {
	Name        string
	Allocatable bool
	// Addresses are all of the pool (at most 2^62), Blocks how many of its blocks nodes have, Claimed how many addresses
	// are in these.
	Addresses, Claimed float64
	Blocks             int
	Reserved, Excluded int
}

// New makes a controller.
func New(cfg Config) *Controller {
	if cfg.Every == 0 {
		cfg.Every = every
	}
	if cfg.Check == 0 {
		cfg.Check = checkEvery
	}
	if cfg.Gone == 0 {
		cfg.Gone = goneAfter
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Log = cfg.Log.With("room", "controller")
	return &Controller{
		cfg: cfg, lease: lease{objects: cfg.Objects, me: cfg.Identity},
		gone: map[string]time.Time{}, missed: map[string]time.Time{}, absent: map[string]time.Time{},
		asked:   notify.New(),
		granted: map[string]time.Time{}, granting: true,
	}
}

// Run looks after pools whenever this agent leads, until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	if c.cfg.Apart {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go c.hear(ctx)
	}
	for {
		pause := c.cfg.Every
		if c.cfg.Needed == nil || c.cfg.Needed() {
			pause = c.turn(ctx)
		}
		if err := c.rest(ctx, pause); err != nil {
			return err
		}
	}
}

// rest waits, and grants meanwhile what agents ask for. Who leads was found out before that: two that believe it do no
// harm.
func (c *Controller) rest(ctx context.Context, pause time.Duration) error {
	over := c.cfg.After(pause)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-over:
			return nil
		case <-c.asked:
		}
		if _, leads := c.Report(); leads {
			if _, err := c.requests(ctx); err != nil {
				c.trouble(err) // the next pass tries it again
			}
		}
	}
}

// turn leads if it can, does what is to be done, and says when to come again.
func (c *Controller) turn(ctx context.Context) time.Duration {
	leads, err := c.lease.hold(ctx, c.cfg.Now(), 3*c.cfg.Every)
	c.mu.Lock()
	if c.leading != leads {
		c.leading, c.report, c.checked = leads, Report{}, time.Time{}
		clear(c.gone) // what was seen before somebody else led is seen anew
		clear(c.absent)
		clear(c.granted)
		c.granting = true
		c.cfg.Log.Info("looks after the pools of addresses", "leads", leads)
	}
	c.mu.Unlock()
	switch {
	case err != nil:
		return c.again(err)
	case !leads && c.cfg.Rank != nil && c.cfg.Rank() >= first:
		return max(seldom, c.cfg.Every)
	case !leads:
		return c.cfg.Every
	}
	return c.again(c.Pass(ctx))
}

// again notes how it went, and says when to come again: soon after the first trouble, and less soon the longer it
// lasts.
func (c *Controller) again(err error) time.Duration {
	c.trouble(err)
	if err == nil {
		c.failed = 0
		return c.cfg.Every
	}
	pause := min(soon<<min(c.failed, 8), c.cfg.Every)
	c.failed++
	return pause
}

// Pass does once what is to be done.
func (c *Controller) Pass(ctx context.Context) error {
	follow, apart := c.cfg.FollowCalico != nil && c.cfg.FollowCalico(), error(nil)
	if c.cfg.Apart {
		asked, err := c.requests(ctx)
		follow, apart = follow || asked, errors.Join(err, c.makePools(ctx), c.orphans(ctx), c.grants(ctx))
	}
	pools, err := Tend(ctx, c.cfg.Objects, c.cfg.Now(), follow)
	err = errors.Join(apart, err)
	c.mu.Lock()
	c.report.Pools = pools
	due := c.checked.IsZero() || c.cfg.Now().Sub(c.checked) >= c.cfg.Check
	c.mu.Unlock()
	err = errors.Join(err, c.machines(ctx, due))
	if !due {
		return err
	}
	return errors.Join(err, c.check(ctx))
}

// Report is what was found last; leads tells whether this agent looks after the pools.
func (c *Controller) Report() (r Report, leads bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.report, c.leading
}

// trouble logs an error once for as long as it is the same.
func (c *Controller) trouble(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != c.said && text != "" {
		c.cfg.Log.Warn("pools of addresses", "err", err)
	}
	c.said = text
}
