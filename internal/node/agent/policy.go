// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/node/adopted"
	"github.com/weft-net/weft/internal/node/policy"
	"github.com/weft-net/weft/internal/node/policystatus"
)

// buildPolicy makes what enforces network policies; nothing where none are to be enforced, or none can be known.
func (a *agent) buildPolicy() {
	if a.data.objectStore == nil || !a.cfg.Policy.Enforced(a.cfg.Network.Mode) {
		return
	}
	cfg := policy.Config{
		Node: a.cfg.Node, Source: a.data.policies(), Objects: a.data.Objects(), Host: a.own.host,
		Keep: a.cfg.Policy.Established == config.EstablishedKeep, Log: a.cfg.Log, Now: a.cfg.Now, After: a.cfg.After,
		Sized: a.known.setPods,
	}
	if a.data.kube != nil {
		a.faults = policystatus.New(policystatus.Config{
			Objects: a.data.Objects(), Events: a.data.kube, Rank: a.member.Rank, Log: a.cfg.Log, Now: a.cfg.Now, After: a.cfg.After,
		})
		cfg.Told = a.faults
	}
	if a.cfg.Policy.Log == config.LogDenied {
		cfg.LogGroup = uint16(a.cfg.Policy.LogGroup)
	}
	a.policy = policy.New(cfg)
	if a.metrics != nil {
		measurePolicies(a.metrics, a.policy)
	}
	if a.pooled() {
		a.adopted = adopted.Open(adopted.Config{
			Node: a.cfg.Node, StateDir: a.cfg.StateDir, Boot: a.own.boot, Records: a.own.ledger, Objects: a.data.Objects(), Cluster: a.data.cluster,
			Policy: a.policy, Log: a.cfg.Log, After: a.cfg.After,
		})
	}
}

// guard is the enforcer as attach sees it.
func (a *agent) guard() attach.Guard {
	if a.policy == nil {
		return nil
	}
	return a.policy
}

// adopt tells the enforcer of the interfaces that an agent before has attached, or has found.
func (a *agent) adopt() {
	if a.policy != nil {
		a.policy.Adopt(append(a.guarded(), a.adopted.All()...)...)
	}
}

// guarded are the interfaces of pods that are attached.
func (a *agent) guarded() []attach.Guarded {
	records, err := a.own.ledger.List()
	if err != nil {
		a.cfg.Log.Error("recovery", "err", err)
	}
	var all []attach.Guarded
	for _, r := range records {
		if g, ok := r.Guarded(); ok && r.Stage == attach.Done {
			g.Machine = g.Machine || a.machines.Has(r.Request.ContainerID)
			all = append(all, g)
		}
	}
	return all
}

// enforce obeys policies, and answers who asks about them, until ctx ends. Where nobody is to, what an agent before has left is
// taken away.
func (a *agent) enforce(ctx context.Context) error {
	if a.policy == nil {
		if err := policy.Clear(ctx, a.own.host, a.guarded()...); err != nil && ctx.Err() == nil {
			a.cfg.Log.Warn("policies of an agent before are still obeyed", "err", err)
		}
		return nil
	}
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return a.policy.Run(ctx) })
	if a.faults != nil {
		parts.Go(func() error { return a.faults.Run(ctx) })
	}
	return parts.Wait()
}

// quiet are the tables of nft that change all the time without anybody having lost anything.
func (a *agent) quiet() []watch.Own {
	if a.policy == nil {
		return nil
	}
	own, err := a.policy.Own()
	if err != nil {
		a.cfg.Log.Warn("changes of policies wake those who look for flushed rules", "err", err)
		return nil
	}
	return []watch.Own{own}
}
