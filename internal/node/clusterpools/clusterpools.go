// SPDX-License-Identifier: Apache-2.0

// Package clusterpools is an agent's part in the cluster's address pools: it makes the pools of the configuration and,
// in turn with the other agents, is the controller. Where the controller is a program of its own, it warns when that
// does not run.
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
	"github.com/weft-net/weft/internal/ipam/blocks"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/doctornote"
	"github.com/weft-net/weft/internal/node/membership"
	"github.com/weft-net/weft/internal/node/metrics"
)

// retryPeriod is when a pool that could not be made is tried again. controllerFirst is when the controller is looked
// for first, controllerEvery how often then.
const retryPeriod, controllerFirst, controllerEvery = 2 * time.Second, time.Minute, 5 * time.Minute

// Config is a Keeper's.
type Config struct {
	Node     membership.Node
	StateDir string
	Network  config.Network
	Objects  store.Objects
	Facts    *facts.Facts
	// Apart reports that the controller is a program of its own.
	Apart bool
	// Needed reports whether pools concern this node, FollowCalico whether weft assigns the addresses of the cluster's
	// network.
	Needed, FollowCalico func() bool
	Metrics              *metrics.Metrics
	Log                  *slog.Logger
	Now                  func() time.Time
	After                func(time.Duration) <-chan time.Time
}

// Keeper does the agent's part.
type Keeper struct{ cfg Config }

// New returns a Keeper.
func New(cfg Config) *Keeper { return &Keeper{cfg} }

// Run is the controller when it is this node's turn, unless the controller is apart, until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	if k.cfg.Apart {
		return k.watchController(ctx)
	}
	c := controller.New(controller.Config{
		Objects: k.cfg.Objects, Identity: k.cfg.Node.Name, Rank: k.cfg.Node.Rank, Needed: k.cfg.Needed,
		FollowCalico: k.cfg.FollowCalico, Log: k.cfg.Log, Now: k.cfg.Now, After: k.cfg.After,
	})
	controller.Measure(k.cfg.Metrics, c)
	return c.Run(ctx)
}

// watchController warns where no controller looks after the pools that this node gives addresses of: the manifests of a
// version before it was a program of its own have none. It is noted in the state directory for weft doctor.
func (k *Keeper) watchController(ctx context.Context) error {
	var seen controller.Sign
	path := filepath.Join(k.cfg.StateDir, blocks.NoControllerFile)
	pause, warned := controllerFirst, ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.cfg.After(pause):
		}
		pause = controllerEvery
		trouble := ""
		if k.cfg.Needed() {
			sign, err := controller.Look(ctx, k.cfg.Objects)
			switch {
			case ctx.Err() != nil:
				return nil
			case err != nil:
				trouble = err.Error()
			case sign == controller.Sign{}:
				trouble = "there is no controller"
			case sign == seen:
				trouble = "the controller does not run: " + sign.Holder + " is silent"
			}
			seen = sign
		}
		if trouble != warned {
			if warned = trouble; trouble != "" {
				k.cfg.Log.Warn("nobody looks after the pools of addresses; apply the Deployment weft-controller of the manifests",
					"why", trouble)
			}
			if err := doctornote.Write(path, trouble, trouble == ""); err != nil {
				k.cfg.Log.Warn("that there is no controller is not noted", "err", err)
			}
		}
	}
}

// MakePools makes the pools that the configuration names and that are not there, until ctx ends. What is there stays as
// people have changed it.
func (k *Keeper) MakePools(ctx context.Context) error {
	if !k.cfg.Network.FromPools() || len(k.cfg.Network.Pools) == 0 || k.cfg.Facts == nil || k.cfg.Apart {
		return nil
	}
	changed, cancel := k.cfg.Facts.Subscribe()
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
		err := k.makeMissing(ctx, k.cfg.Facts.Cluster().Pools)
		if err == nil {
			trouble = ""
			continue
		}
		if words := err.Error(); words != trouble && ctx.Err() == nil {
			trouble = words
			k.cfg.Log.Warn("network.pools", "err", err)
		}
		again = k.cfg.After(retryPeriod)
	}
}

// makeMissing makes what is missing of the configuration's pools.
func (k *Keeper) makeMissing(ctx context.Context, have []model.AddressPool) error {
	made, err := controller.MakePools(ctx, k.cfg.Objects, k.cfg.Network.PoolModels(), have)
	for _, p := range made {
		k.cfg.Log.Info("pool made", "pool", p.Name, "cidr", p.Regions[0].CIDR.String())
	}
	return err
}
