// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/endpoint/ledger"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/adopted"
	"github.com/weft-net/weft/internal/node/policy"
	"github.com/weft-net/weft/internal/node/policystatus"
	"github.com/weft-net/weft/internal/node/unrecorded"
	planpolicy "github.com/weft-net/weft/internal/plan/policy"
)

// enforcement has the components that enforce network policies.
type enforcement struct {
	policy      *policy.Enforcer       // nil where policies are not enforced
	unsupported *policystatus.Reporter // nil without an API server
	adopted     *adopted.Endpoints     // nil where pods get no addresses from pools
	lost        *unrecorded.Policies   // of interfaces without a record; nil where there is no policy
	ledger      *ledger.Ledger
	host        *kernel.Conn
	log         *slog.Logger
}

// buildPolicy creates these components; the enforcer is nil if policies are disabled or there is no source.
func (a *agent) buildPolicy() enforcement {
	e := enforcement{ledger: a.own.ledger, host: a.own.host, log: a.cfg.Log}
	if a.data.objectStore == nil || !a.cfg.Policy.Enforced(a.cfg.Network.Mode) {
		return e
	}
	cfg := policy.Config{
		Node: a.cfg.Node, Source: a.data.policies(), Objects: a.data.Objects(), Host: a.own.host,
		Keep: a.cfg.Policy.Established == config.EstablishedKeep, Log: a.cfg.Log, Now: a.cfg.Now, After: a.cfg.After,
		Tunnels:  tunnels(a.cfg.Network),
		PodCount: a.telemetry.known.setPods, Deletions: a.own.deletions, ConnectionsEnded: a.fast.Flush,
	}
	if a.data.kube != nil {
		e.unsupported = policystatus.New(policystatus.Config{
			Objects: a.data.Objects(), Events: a.data.kube, Rank: a.self.member.Rank, Log: a.cfg.Log, Now: a.cfg.Now,
			After: a.cfg.After,
		})
		cfg.Unsupported = e.unsupported
	}
	programmed := a.telemetry.metrics.Histogram("weft_policy_programming_seconds",
		"Time from the arrival of a changed object until the rules of all interfaces follow it, in seconds.",
		[]float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60})
	cfg.Programmed = func(took time.Duration) { programmed(took.Seconds()) }
	if a.cfg.Policy.Log == config.LogDenied {
		cfg.LogGroup = uint16(a.cfg.Policy.LogGroup)
	}
	e.policy = policy.New(cfg)
	if a.telemetry.metrics != nil {
		measurePolicies(a.telemetry.metrics, e.policy)
	}
	lost := unrecorded.Config{
		Node: a.cfg.Node, Objects: a.data.Objects(), Links: a.own.host.Links, Log: a.cfg.Log, After: a.cfg.After,
	}
	if a.followsCluster() {
		lost.Cluster, lost.Synced = a.data.cluster, a.data.facts.Synced()
	}
	e.lost = unrecorded.NewPolicies(lost, a.own.lost)
	if a.pooled() {
		e.adopted = adopted.Open(adopted.Config{
			Node: a.cfg.Node, StateDir: a.cfg.StateDir, Boot: a.own.boot, Records: a.own.ledger, Objects: a.data.Objects(),
			Cluster: a.data.cluster, Lost: a.own.lost, Links: a.own.host.Links,
			Policy: e.policy, Log: a.cfg.Log, After: a.cfg.After,
		})
	}
	return e
}

// tunnels are those between nodes in which pods' packets may be: of the configured kind, of pools, and of nodes that another
// vendor still connects.
func tunnels(n config.Network) (out []planpolicy.Tunnel) {
	for _, port := range []int{n.VXLANPort, n.UDPPort, n.WireguardPort, n.WireguardPortV6} {
		out = append(out, planpolicy.Tunnel{Port: uint16(port)}) //nolint:gosec // the configuration was checked
	}
	return append(out, planpolicy.Tunnel{Number: unix.IPPROTO_IPIP}, planpolicy.Tunnel{Number: unix.IPPROTO_IPV6})
}

// admit enforces policy on a VM's interfaces before they are opened.
func (e *enforcement) admit(ctx context.Context, all ...model.WorkloadEndpoint) error {
	if e.policy == nil {
		return nil
	}
	return e.policy.Admit(ctx, all...)
}

// guard returns the enforcer for attach.
func (e *enforcement) guard() attach.PolicyEnforcer {
	if e.policy == nil {
		return nil
	}
	return e.policy
}

// adopt adds the interfaces that earlier agents attached, or found, to the enforcer.
func (e *enforcement) adopt(isVM func(containerID string) bool) {
	if e.policy != nil {
		e.policy.Adopt(append(e.endpoints(isVM), e.adopted.All()...)...)
	}
}

// endpoints returns the interfaces of the attached pods.
func (e *enforcement) endpoints(isVM func(containerID string) bool) []model.WorkloadEndpoint {
	records, err := e.ledger.List()
	if err != nil {
		e.log.Error("interfaces of attached pods could not be read", "err", err)
	}
	var all []model.WorkloadEndpoint
	for _, r := range records {
		if one, ok := r.Endpoint(); ok && r.Stage == attach.Done {
			one.VM = one.VM || isVM(r.Request.ContainerID)
			all = append(all, one)
		}
	}
	return all
}

// run enforces policies until ctx ends. If policies are disabled, the tables of an earlier agent are removed.
func (e *enforcement) run(ctx context.Context, isVM func(containerID string) bool) error {
	if e.policy == nil {
		if err := policy.Clear(ctx, e.host, e.endpoints(isVM)...); err != nil && ctx.Err() == nil {
			e.log.Warn("tables of an earlier agent could not be removed and stay in force", "err", err)
		}
		return nil
	}
	// Rules are written only when these interfaces have theirs among them.
	e.policy.Adopt(e.lost.Resolve(ctx)...)
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return e.policy.Run(ctx) })
	parts.Go(func() error { return e.lost.Run(ctx, e.policy) })
	if e.unsupported != nil {
		parts.Go(func() error { return e.unsupported.Run(ctx) })
	}
	return parts.Wait()
}

// quiet returns the nft tables whose changes are no external changes.
func (e *enforcement) quiet() []watch.Owner {
	if e.policy == nil {
		return nil
	}
	own, err := e.policy.Own()
	if err != nil {
		e.log.Warn("table of policies is unknown, and each of its changes causes a comparison", "err", err)
		return nil
	}
	return []watch.Owner{own}
}
