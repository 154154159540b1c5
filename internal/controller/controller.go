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
	"github.com/weft-net/weft/internal/ipam/serviceips"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

// Config configures a Controller.
type Config struct {
	Objects store.Objects
	// Events, which may be nil, creates events on pools, blocks, claims and networks.
	Events Events
	// Identity is the unique name of this candidate for leadership.
	Identity string
	// Rank returns how many candidates precede this agent if there is no leader; the first few poll the Lease often, the
	// others rarely.
	Rank func() int
	// Needed reports whether there is anything to do. It is called often and must be cheap.
	Needed func() bool
	// Separate: the controller is a separate program, with rights that agents do not have. It grants requests of agents
	// about pools, creates missing Pools, and marks the blocks of deleted nodes as orphaned.
	Separate bool
	Pools    []model.AddressPool
	// Node is the node that this program runs on. If even its Node object is missing, the list of nodes is not trusted.
	Node string
	// FollowCalico reports whether pools mirror Calico's, because weft allocates the addresses of the cluster's network.
	// Nil means false.
	FollowCalico func() bool
	// AssignServiceIPs is to which Services of type LoadBalancer addresses are assigned; empty means AllServices.
	AssignServiceIPs serviceips.Mode
	Log              *slog.Logger
	Now              func() time.Time
	After            func(time.Duration) <-chan time.Time
	// Every is the interval of reconciliation, Check that of audits; 0 means half a minute and ten minutes. NodeGoneAfter
	// is how long a Node object must be missing before its blocks are orphaned; 0 means ten minutes. Renew is the interval at
	// which a Separate controller renews the Lease, or looks whether it can have it; 0 means ten seconds, and at most Every.
	// The Lease lasts for three intervals.
	Every, Check, NodeGoneAfter, Renew time.Duration
}

const (
	poolInterval  = 30 * time.Second
	auditInterval = 10 * time.Minute
	// renewInterval is short: pods whose nodes need a grant wait for another controller if the leader's node has died.
	renewInterval = 10 * time.Second
	// nodeGoneAfter is long enough for a node to be re-created.
	nodeGoneAfter = 10 * time.Minute
	// retryDelay is the first delay after an error.
	retryDelay = 5 * time.Second
	// followerInterval is how often an agent polls the Lease that is not among the first candidates.
	followerInterval = 10 * time.Minute
	candidates       = 5
)

// Controller reconciles the cluster's pools while it is the leader.
type Controller struct {
	cfg   Config
	lease lease

	mu           sync.Mutex
	report       Report
	leading      bool
	lastProblem  string // the last error that was logged
	failures     int    // consecutive passes with errors
	checked      time.Time
	goneSince    map[string]time.Time // reservations of deleted pods, since when
	missingSince map[string]time.Time // claims of deleted virtual machines, since when
	absentSince  map[string]time.Time // nodes with blocks and without a Node object, since when
	nodesListed  time.Time            // when nodes were listed last
	requested    notify.Chan          // agents have made requests
	grantedSince map[string]time.Time // addresses that were granted to nodes, since when
	// grantsPending: there may be unused grants.
	grantsPending bool
	// servicesDue: Services or pools have changed since addresses were assigned to Services. followsCalico is FollowCalico
	// or a request for it, in the last pass.
	servicesDue, followsCalico bool
	// cooldown is of the addresses that Services have given up.
	cooldown serviceips.Cooldown
}

// Report holds a controller's last results.
type Report struct {
	// Pools are the pools in numbers.
	Pools []PoolReport
	// Findings are those of the last audit; Checked is its time, zero before the first.
	Findings []audit.Finding
	Checked  time.Time
}

// PoolReport is one pool in numbers.
type PoolReport struct {
	Name        string
	Allocatable bool
	// Addresses counts all addresses of the pool (at most 2^62), Blocks its blocks with an affinity to a node, Claimed the
	// addresses in those blocks.
	Addresses, Claimed float64
	Blocks             int
	Reserved, Excluded int
}

// New creates a controller.
func New(cfg Config) *Controller {
	if cfg.Every == 0 {
		cfg.Every = poolInterval
	}
	if cfg.Check == 0 {
		cfg.Check = auditInterval
	}
	if cfg.Renew == 0 {
		cfg.Renew = renewInterval
	}
	if cfg.Renew = min(cfg.Renew, cfg.Every); !cfg.Separate {
		cfg.Renew = cfg.Every
	}
	if cfg.NodeGoneAfter == 0 {
		cfg.NodeGoneAfter = nodeGoneAfter
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Log = cfg.Log.With("component", "controller")
	return &Controller{
		cfg: cfg, lease: lease{objects: cfg.Objects, me: cfg.Identity},
		goneSince: map[string]time.Time{}, missingSince: map[string]time.Time{}, absentSince: map[string]time.Time{},
		requested:    notify.New(),
		grantedSince: map[string]time.Time{}, grantsPending: true, servicesDue: true,
	}
}

// Run reconciles pools while this agent leads, until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	if c.cfg.Separate {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go c.watchRequests(ctx)
		go c.watchServices(ctx)
	}
	for {
		pause := c.cfg.Every
		if c.cfg.Needed == nil || c.cfg.Needed() {
			pause = c.step(ctx)
		}
		if err := c.wait(ctx, pause); err != nil {
			return err
		}
	}
}

// wait waits for the next pass, and meanwhile grants requests of agents and renews the Lease. It returns at once if
// it does not have the Lease any more. Two leaders for a moment do no harm.
func (c *Controller) wait(ctx context.Context, pause time.Duration) error {
	over := c.cfg.After(pause)
	var renew <-chan time.Time
	if c.cfg.Renew < pause {
		renew = c.cfg.After(c.cfg.Renew)
	}
	for {
		_, leads := c.Report()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-over:
			return nil
		case <-renew:
			renew = c.cfg.After(c.cfg.Renew)
			if !leads {
				continue
			}
			if still, err := c.lead(ctx); err != nil || !still {
				return nil // the next step retries
			}
			continue
		case <-c.requested:
		}
		if leads {
			_, err := c.grantRequests(ctx)
			if err = errors.Join(err, c.assignServices(ctx, c.followsCalico)); err != nil {
				c.logProblem(err) // the next pass retries
			}
		}
	}
}

// lead acquires or renews the Lease, and reports whether this controller leads.
func (c *Controller) lead(ctx context.Context) (bool, error) {
	leads, err := c.lease.acquire(ctx, c.cfg.Now(), 3*c.cfg.Renew)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leading != leads {
		c.leading, c.report, c.checked = leads, Report{}, time.Time{}
		clear(c.goneSince) // times from before another leader are not valid
		clear(c.absentSince)
		clear(c.grantedSince)
		c.grantsPending, c.servicesDue = true, true
		c.cfg.Log.Info("leadership of the controller changed", "leader", leads)
	}
	return leads, err
}

// step acquires or renews the Lease, runs a pass if it leads, and returns the delay of the next step.
func (c *Controller) step(ctx context.Context) time.Duration {
	leads, err := c.lead(ctx)
	switch {
	case err != nil:
		return c.nextDelay(err)
	case !leads && c.cfg.Rank != nil && c.cfg.Rank() >= candidates:
		return max(followerInterval, c.cfg.Every)
	case !leads:
		return c.cfg.Renew
	}
	return c.nextDelay(c.Pass(ctx))
}

// nextDelay logs an error and returns the delay of the next pass, which backs off while errors last.
func (c *Controller) nextDelay(err error) time.Duration {
	c.logProblem(err)
	if err == nil {
		c.failures = 0
		return c.cfg.Every
	}
	pause := min(retryDelay<<min(c.failures, 8), c.cfg.Every)
	c.failures++
	return pause
}

// Pass reconciles once.
func (c *Controller) Pass(ctx context.Context) error {
	follow, apart := c.cfg.FollowCalico != nil && c.cfg.FollowCalico(), error(nil)
	if c.cfg.Separate {
		asked, err := c.grantRequests(ctx)
		follow, apart = follow || asked, errors.Join(err, c.createPools(ctx), c.markOrphans(ctx), c.revokeUnusedGrants(ctx))
	}
	c.followsCalico = follow
	pools, err := Reconcile(ctx, c.cfg.Objects, c.cfg.Events, c.cfg.Now(), follow)
	err = errors.Join(apart, err, c.assignServices(ctx, follow))
	c.mu.Lock()
	c.report.Pools = pools
	due := c.checked.IsZero() || c.cfg.Now().Sub(c.checked) >= c.cfg.Check
	c.mu.Unlock()
	err = errors.Join(err, c.releaseVMClaims(ctx, due))
	if !due {
		return err
	}
	return errors.Join(err, c.check(ctx))
}

// Report returns the last results; leads reports whether this agent is the leader.
func (c *Controller) Report() (r Report, leads bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.report, c.leading
}

// logProblem logs an error, unless it is the same as before.
func (c *Controller) logProblem(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != c.lastProblem && text != "" {
		c.cfg.Log.Warn("pools cannot be reconciled", "err", err)
	}
	c.lastProblem = text
}
