// SPDX-License-Identifier: Apache-2.0

// Package clusterpools creates the address pools of the agent's configuration and runs the pool controller on the node
// whose turn it is. Where the controller is a Deployment, the package warns if that does not run.
package clusterpools

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/cluster/facts"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/controller"
	"github.com/weft-net/weft/internal/ipam/poolrequest"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/doctorfile"
	"github.com/weft-net/weft/internal/node/membership"
	"github.com/weft-net/weft/internal/node/metrics"
)

// retryPeriod is the pause before a pool that could not be created is retried. controllerFirst is when the
// controller's Lease is checked first, controllerEvery the period after that.
const retryPeriod, controllerFirst, controllerEvery = 2 * time.Second, time.Minute, 5 * time.Minute

// Config configures a Manager.
type Config struct {
	Node     membership.Node
	StateDir string
	Network  config.Network
	Objects  store.Objects
	// Events, which may be nil, creates the controller's events.
	Events controller.Events
	Facts  *facts.Facts
	// Apart reports that the controller is a separate program.
	Apart bool
	// Needed reports whether this node uses pools, FollowCalico whether weft allocates the addresses of the cluster's
	// network.
	Needed, FollowCalico func() bool
	Metrics              *metrics.Metrics
	Log                  *slog.Logger
	Now                  func() time.Time
	After                func(time.Duration) <-chan time.Time
}

// Manager creates the configuration's pools, and runs or watches the controller.
type Manager struct{ cfg Config }

// New returns a Manager.
func New(cfg Config) *Manager { return &Manager{cfg} }

// Run runs the controller while it is this node's turn, or watches a separate one, until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	if m.cfg.Apart {
		return m.watchController(ctx)
	}
	c := controller.New(controller.Config{
		Objects: m.cfg.Objects, Events: m.cfg.Events, Identity: m.cfg.Node.Name, Rank: m.cfg.Node.Rank, Needed: m.cfg.Needed,
		FollowCalico: m.cfg.FollowCalico, Log: m.cfg.Log, Now: m.cfg.Now, After: m.cfg.After,
	})
	controller.RegisterMetrics(m.cfg.Metrics, c)
	return c.Run(ctx)
}

// watchController warns if no controller manages the pools that this node allocates from: manifests of versions in
// which it was no separate program have none. The warning is also written to the state directory for weft doctor.
func (m *Manager) watchController(ctx context.Context) error {
	var seen controller.Heartbeat
	path := filepath.Join(m.cfg.StateDir, poolrequest.NoControllerFile)
	pause, warned := controllerFirst, ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.cfg.After(pause):
		}
		pause = controllerEvery
		trouble := ""
		if m.cfg.Needed() {
			sign, err := controller.ReadHeartbeat(ctx, m.cfg.Objects)
			switch {
			case ctx.Err() != nil:
				return nil
			case err != nil:
				trouble = err.Error()
			case sign == controller.Heartbeat{}:
				trouble = "there is no controller"
			case sign == seen:
				trouble = "the controller does not run: " + sign.Holder + " does not renew its lease"
			}
			seen = sign
		}
		if trouble != warned {
			if warned = trouble; trouble != "" {
				m.cfg.Log.Warn("no controller manages the address pools; apply the Deployment weft-controller of the manifests",
					"reason", trouble)
			}
			if err := doctorfile.Write(path, trouble, trouble == ""); err != nil {
				m.cfg.Log.Warn("agent could not write the controller warning for weft doctor", "err", err)
			}
		}
	}
}

// CreatePools creates the configuration's pools that do not exist, until ctx ends. Existing pools are not changed:
// users may have edited them.
func (m *Manager) CreatePools(ctx context.Context) error {
	if !m.cfg.Network.FromPools() || len(m.cfg.Network.Pools) == 0 || m.cfg.Facts == nil || m.cfg.Apart {
		return nil
	}
	changed, cancel := m.cfg.Facts.Subscribe()
	defer cancel()
	trouble := ""
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-again:
		}
		again = nil
		err := m.makeMissing(ctx, m.cfg.Facts.Cluster().Pools)
		if err == nil {
			trouble = ""
			continue
		}
		if words := err.Error(); words != trouble && ctx.Err() == nil {
			trouble = words
			m.cfg.Log.Warn("pools of network.pools could not be created", "err", err)
		}
		again = m.cfg.After(retryPeriod)
	}
}

// makeMissing creates the configuration's pools that do not exist.
func (m *Manager) makeMissing(ctx context.Context, have []model.AddressPool) error {
	made, err := controller.CreatePools(ctx, m.cfg.Objects, m.cfg.Network.PoolModels(), have)
	for _, p := range made {
		m.cfg.Log.Info("pool is created", "pool", p.Name, "cidr", p.Regions[0].CIDR.String())
	}
	return err
}
