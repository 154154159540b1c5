// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/node/policy"
	"github.com/weft-net/weft/internal/node/policystatus"
)

// enforcer makes what obeys network policies; nil where nobody is to, or nobody knows of any.
func (a *agent) enforcer() *policy.Enforcer {
	if a.store == nil || !a.cfg.Policy.Enforced(a.cfg.Network.Mode) {
		return nil
	}
	cfg := policy.Config{
		Node: a.cfg.Node, Source: a.policySource(), Objects: a.store.Objects(), Host: a.host,
		Keep: a.cfg.Policy.Established == config.EstablishedKeep, Log: a.cfg.Log, Now: a.cfg.Now, After: a.cfg.After,
		Sized: func(pods int) { a.resize(func(s *sizes) { s.pods = pods }) },
	}
	if a.kube != nil {
		a.faults = policystatus.New(policystatus.Config{
			Objects: a.kube.Objects(), Events: a.kube, Rank: a.rank, Log: a.cfg.Log, Now: a.cfg.Now, After: a.cfg.After,
		})
		cfg.Told = a.faults
	}
	if a.cfg.Policy.Log == config.LogDenied {
		cfg.LogGroup = uint16(a.cfg.Policy.LogGroup)
	}
	return policy.New(cfg)
}

// policySource is where policies are told of.
func (a *agent) policySource() policy.Source {
	if a.kube != nil {
		return a.kube.Policies()
	}
	return a.store.Objects()
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
	records, err := a.ledger.List()
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
		if err := policy.Clear(ctx, a.host, a.guarded()...); err != nil && ctx.Err() == nil {
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

// measurePolicies adds what the enforcer counts.
func (a *agent) measurePolicies() {
	if a.policy == nil {
		return
	}
	p := a.policy
	a.metrics.Gauge("weft_policies", "Network policies that this node knows.", func() float64 { return float64(p.Stats().Policies) })
	a.metrics.Gauge("weft_policies_faulty", "Those of them that are not understood in full.", func() float64 { return float64(p.Stats().Faulty) })
	a.metrics.Gauge("weft_policy_known", "1 when everything is known that policies go by; 0: the kernel is as it was, and new pods wait.", func() float64 {
		if p.Known() {
			return 1
		}
		return 0
	})
	a.metrics.Gauge("weft_policy_transactions", "Changes of policies that were written into the kernel.", func() float64 { return float64(p.Stats().Transactions) })
	a.metrics.Gauge("weft_policy_repairs", "How often somebody else had changed the policies' table.", func() float64 { return float64(p.Stats().Meddled) })
	a.metrics.Gauge("weft_policy_closed_ports", "Ports of bridges, and macvtaps, that are closed because the policies of their guests cannot be written.", func() float64 { return float64(p.Stats().Barred) })
	a.metrics.Gauge("weft_policy_connections_cut", "Connections that were ended because a changed policy does not allow them.", func() float64 { return float64(p.Stats().Cut) })
	a.metrics.Gauges("weft_policy_denied_packets", "Packets that were denied on this node, by who denied them.", "by", p.Denied)
}
