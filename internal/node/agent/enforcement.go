// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/endpoint/ledger"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/adopted"
	"github.com/weft-net/weft/internal/node/policy"
	"github.com/weft-net/weft/internal/node/policystatus"
)

// enforcement is what enforces network policies.
type enforcement struct {
	policy  *policy.Enforcer       // nil where policies are not enforced
	faults  *policystatus.Reporter // nil without an API server
	adopted *adopted.Endpoints     // nil where pods are not numbered from pools
	ledger  *ledger.Ledger
	host    *kernel.Conn
	log     *slog.Logger
}

// buildPolicy makes what enforces network policies; no enforcer where none are to be enforced, or none can be known.
func (a *agent) buildPolicy() enforcement {
	e := enforcement{ledger: a.own.ledger, host: a.own.host, log: a.cfg.Log}
	if a.data.objectStore == nil || !a.cfg.Policy.Enforced(a.cfg.Network.Mode) {
		return e
	}
	cfg := policy.Config{
		Node: a.cfg.Node, Source: a.data.policies(), Objects: a.data.Objects(), Host: a.own.host,
		Keep: a.cfg.Policy.Established == config.EstablishedKeep, Log: a.cfg.Log, Now: a.cfg.Now, After: a.cfg.After,
		Sized: a.told.known.setPods,
	}
	if a.data.kube != nil {
		e.faults = policystatus.New(policystatus.Config{
			Objects: a.data.Objects(), Events: a.data.kube, Rank: a.self.member.Rank, Log: a.cfg.Log, Now: a.cfg.Now,
			After: a.cfg.After,
		})
		cfg.Told = e.faults
	}
	if a.cfg.Policy.Log == config.LogDenied {
		cfg.LogGroup = uint16(a.cfg.Policy.LogGroup)
	}
	e.policy = policy.New(cfg)
	if a.told.metrics != nil {
		measurePolicies(a.told.metrics, e.policy)
	}
	if a.pooled() {
		e.adopted = adopted.Open(adopted.Config{
			Node: a.cfg.Node, StateDir: a.cfg.StateDir, Boot: a.own.boot, Records: a.own.ledger, Objects: a.data.Objects(),
			Cluster: a.data.cluster,
			Policy:  e.policy, Log: a.cfg.Log, After: a.cfg.After,
		})
	}
	return e
}

// admit has policy hold for a machine's interfaces before they are opened.
func (e *enforcement) admit(ctx context.Context, all ...model.WorkloadEndpoint) error {
	if e.policy == nil {
		return nil
	}
	return e.policy.Admit(ctx, all...)
}

// guard is the enforcer as attach sees it.
func (e *enforcement) guard() attach.Guard {
	if e.policy == nil {
		return nil
	}
	return e.policy
}

// adopt tells the enforcer of the interfaces that an agent before has attached, or has found.
func (e *enforcement) adopt(isMachine func(containerID string) bool) {
	if e.policy != nil {
		e.policy.Adopt(append(e.endpoints(isMachine), e.adopted.All()...)...)
	}
}

// endpoints are those of the pods that are attached.
func (e *enforcement) endpoints(isMachine func(containerID string) bool) []model.WorkloadEndpoint {
	records, err := e.ledger.List()
	if err != nil {
		e.log.Error("recovery", "err", err)
	}
	var all []model.WorkloadEndpoint
	for _, r := range records {
		if one, ok := r.Endpoint(); ok && r.Stage == attach.Done {
			one.VM = one.VM || isMachine(r.Request.ContainerID)
			all = append(all, one)
		}
	}
	return all
}

// run enforces policies, until ctx ends. Where none are to be enforced, what an agent before has left is removed.
func (e *enforcement) run(ctx context.Context, isMachine func(containerID string) bool) error {
	if e.policy == nil {
		if err := policy.Clear(ctx, e.host, e.endpoints(isMachine)...); err != nil && ctx.Err() == nil {
			e.log.Warn("policies of an agent before are still obeyed", "err", err)
		}
		return nil
	}
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return e.policy.Run(ctx) })
	if e.faults != nil {
		parts.Go(func() error { return e.faults.Run(ctx) })
	}
	return parts.Wait()
}

// quiet are the tables of nft that change all the time without anybody having lost anything.
func (e *enforcement) quiet() []watch.Own {
	if e.policy == nil {
		return nil
	}
	own, err := e.policy.Own()
	if err != nil {
		e.log.Warn("changes of policies wake those who look for flushed rules", "err", err)
		return nil
	}
	return []watch.Own{own}
}
