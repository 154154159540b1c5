// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/controller"
	"github.com/weft-net/weft/internal/model"
)

// poolAgain is when a pool that could not be made is tried again.
const poolAgain = 2 * time.Second

// errNoPools tells of a cluster without a pool.
var errNoPools = errors.New("no pool for the cluster's pods")

// fromPools tells whether pods of weft's own network are numbered from blocks of pools.
func (a *agent) fromPools() bool { return a.cfg.Network.FromPools() }

// checkPools refuses pools without a place for them.
func (a *agent) checkPools() error {
	if !a.fromPools() || a.store != nil {
		return nil
	}
	return model.Faultf(model.CodeInvalidConf, "set kubernetes.inCluster, kubernetes.kubeconfig or storeDir",
		"network.pools: pools need a cluster whose nodes share them")
}

// makePools makes the pools that the configuration names and that are not there, until ctx ends. What is there stays as
// people have changed it.
func (a *agent) makePools(ctx context.Context) error {
	if !a.fromPools() || len(a.cfg.Network.Pools) == 0 || a.facts == nil || a.apart() {
		return nil
	}
	changed, cancel := a.facts.Subscribe()
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
		err := a.makeMissing(ctx, a.facts.Cluster().Pools)
		if err == nil {
			trouble = ""
			continue
		}
		if words := err.Error(); words != trouble && ctx.Err() == nil {
			trouble = words
			a.cfg.Log.Warn("network.pools", "err", err)
		}
		again = a.cfg.After(poolAgain)
	}
}

// makeMissing makes what is missing of the configuration's pools.
func (a *agent) makeMissing(ctx context.Context, have []model.AddressPool) error {
	made, err := controller.MakePools(ctx, a.objects(), a.cfg.Network.PoolModels(), have)
	for _, p := range made {
		a.cfg.Log.Info("pool made", "pool", p.Name, "cidr", p.Regions[0].CIDR.String())
	}
	return err
}

// awaited tells whether one of the configuration's pools is about to be made: pods that come before would lack a family.
func (a *agent) awaited() bool {
	return slices.ContainsFunc(a.cfg.Network.Pools, func(p config.Pool) bool {
		there, inTheWay := controller.FindPool(a.facts.Cluster().Pools, p.Model())
		return !there && inTheWay == ""
	})
}

// poolFamilies are the families (4, 6) of which the cluster's pools have addresses for pods that do not ask for one.
func (a *agent) poolFamilies() []int {
	if a.facts == nil || a.facts.Cluster() == nil {
		return nil
	}
	return familiesOf(a.facts.Cluster().Pools, func(p model.AddressPool) bool {
		return p.AssignmentMode == model.AssignAutomatic && !p.Disabled && !p.Deleted && p.Allows(model.UseWorkload)
	})
}

// familiesOf are the families of pools that are chosen.
func familiesOf(pools []model.AddressPool, choose func(model.AddressPool) bool) []int {
	var out []int
	for _, p := range pools {
		if !choose(p) {
			continue
		}
		for _, r := range p.Regions {
			family := 4
			if r.CIDR.Addr().Is6() {
				family = 6
			}
			if !slices.Contains(out, family) {
				out = append(out, family)
			}
		}
	}
	slices.Sort(out)
	return out
}

// ownPlugins are the plugin objects of weft's own network whose addresses are of pools.
func (a *agent) ownPlugins() []json.RawMessage {
	if a.cfg.Network.Mode != config.ModeCluster || !a.fromPools() {
		return nil
	}
	own, err := a.network()
	if err != nil {
		return nil // place says so
	}
	conf, err := own.Plugin()
	if err != nil {
		return nil
	}
	return []json.RawMessage{conf}
}

// noPools says that there is nothing yet to number pods from.
func (a *agent) noPools() error {
	var names []string
	for _, p := range a.cfg.Network.Pools {
		names = append(names, p.Model().Name)
	}
	hint := "make an AddressPool with an assignmentMode, or set network.pools"
	if len(names) > 0 {
		hint = "the agents make " + strings.Join(names, ", ") + "; look at their logs"
		if a.apart() {
			hint = "the controller makes " + strings.Join(names, ", ") + "; look at the Deployment weft-controller and its log"
		}
	}
	return model.Faultf(model.CodeNotAvailable, hint, "there is %w", errNoPools)
}
