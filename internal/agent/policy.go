// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/attach"
	"github.com/weft-net/weft/internal/config"
	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/policy"
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

// adopt tells the enforcer of the interfaces that an agent before has attached.
func (a *agent) adopt() {
	if a.policy == nil {
		return
	}
	records, err := a.ledger.List()
	if err != nil {
		a.cfg.Log.Error("recovery", "err", err)
	}
	var all []attach.Guarded
	for _, r := range records {
		if g, ok := r.Guarded(); ok && r.Stage == attach.Done {
			all = append(all, g)
		}
	}
	a.policy.Adopt(all...)
}

// enforce obeys policies, and answers who asks about them, until ctx ends.
func (a *agent) enforce(ctx context.Context) error {
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return a.policy.Run(ctx) })
	parts.Go(func() error { return a.policy.Serve(ctx, a.policyPath()) })
	return parts.Wait()
}

// policyPath is the socket's path.
func (a *agent) policyPath() string { return filepath.Join(a.cfg.StateDir, policy.Socket) }

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
