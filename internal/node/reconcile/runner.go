// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// Runner runs the tunnels that need a process in user space (udp, wireguard-go, the commands of extension). Each pass
// calls Learn, plans, applies the plan and calls Keep, when the devices of the plan exist. Calls are not concurrent.
// Its creator closes it after the reconciler has ended.
type Runner interface {
	// Learn returns the plan's inputs from user space backends, by backend and in its own format: a public key, or the
	// output of a command. It becomes mesh.Config.Learned.
	Learn(ctx context.Context, cfg mesh.Config) (map[string]string, error)
	// NoMasquerade starts, changes and stops tunnels so that the wanted ones run. Unchanged ones cost nothing.
	Keep(ctx context.Context, wanted []mesh.Tunnel) error
	// Changed receives a token when a tunnel has died or the result of Learn has changed: then a pass is due. It may be
	// nil.
	Changed() <-chan struct{}
}

// learn completes the mesh's configuration with the results of Learn.
func (r *Reconciler) learn(ctx context.Context) (mesh.Config, error) {
	cfg := r.cfg.Mesh
	cfg.BadChecksums = slices.Concat(cfg.BadChecksums, r.checksums.bad)
	if r.cfg.Exceptions != nil {
		r.except, r.again = r.cfg.Exceptions()
		cfg.NoMasquerade = slices.Concat(cfg.NoMasquerade, r.except)
	}
	if r.cfg.Own != nil {
		cfg.TunnelAddrs = slices.Concat(cfg.TunnelAddrs, r.cfg.Own())
	}
	if r.cfg.Routed != nil {
		cfg.RoutedAddrs = r.cfg.Routed()
	}
	if r.cfg.Relays != nil {
		cfg.Relays = r.cfg.Relays()
	}
	if r.cfg.Marked != nil {
		cfg.DSCPMarks = r.cfg.Marked()
	}
	if r.cfg.Runner == nil {
		return cfg, nil
	}
	learned, err := r.cfg.Runner.Learn(ctx, cfg)
	if err != nil {
		return cfg, fmt.Errorf("tunnels: %w", err)
	}
	cfg.Learned = learned
	return cfg, nil
}

// keep runs the tunnels of the plan. While the underlay is missing the previous ones continue.
func (r *Reconciler) keep(ctx context.Context, t mesh.Topology) error {
	wanted := t.Tunnels
	if len(t.LostFamilies) > 0 {
		for _, before := range r.running {
			if !slices.ContainsFunc(wanted, func(w mesh.Tunnel) bool { return w.Link == before.Link }) {
				wanted = append(slices.Clip(wanted), before)
			}
		}
	}
	if r.cfg.Runner == nil {
		if len(wanted) == 0 {
			return nil
		}
		return model.Errorf(model.CodeInvalidConf, "use a backend in the kernel: vxlan, host-gw",
			"backend %s: tunnels in user space are not available", wanted[0].Backend)
	}
	if err := r.cfg.Runner.Keep(ctx, wanted); err != nil {
		return fmt.Errorf("tunnels: %w", err)
	}
	r.running = wanted
	return nil
}
