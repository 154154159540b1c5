// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// Runner keeps the tunnels that need a process in user space (udp, wireguard-go, the commands of extension). Each pass
// calls Learn, plans, brings the kernel to the plan and calls Keep: so the devices that the plan names are there by
// then. It is called by one goroutine at a time. Who made it closes it when the reconciler has ended.
type Runner interface {
	// Learn says what the plan must know of back ends in user space, by their names and in their own words: a public key,
	// what a command printed. It becomes mesh.Config.Learned.
	Learn(ctx context.Context, cfg mesh.Config) (map[string]string, error)
	// Keep brings the tunnels that run to those that are wanted: it starts, changes and stops. The same ones again cost
	// nothing.
	Keep(ctx context.Context, wanted []mesh.Tunnel) error
	// Changed holds a token when a tunnel has died or Learn would say something else: then a pass is due. It may be nil.
	Changed() <-chan struct{}
}

// learn completes the mesh's configuration with what was found out.
func (r *Reconciler) learn(ctx context.Context) (mesh.Config, error) {
	cfg := r.cfg.Mesh
	cfg.BadChecksums = slices.Concat(cfg.BadChecksums, r.checksums.bad)
	if r.cfg.Exceptions != nil {
		r.except, r.again = r.cfg.Exceptions()
		cfg.Keep = slices.Concat(cfg.Keep, r.except)
	}
	if r.cfg.Own != nil {
		cfg.TunnelAddrs = slices.Concat(cfg.TunnelAddrs, r.cfg.Own())
	}
	if r.cfg.Routed != nil {
		cfg.Routed = r.cfg.Routed()
	}
	if r.cfg.Relays != nil {
		cfg.Relays = r.cfg.Relays()
	}
	if r.cfg.Marked != nil {
		cfg.Marked = r.cfg.Marked()
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

// keep has the tunnels run that the plan wants. While the underlay is lost those of before go on.
func (r *Reconciler) keep(ctx context.Context, t mesh.Topology) error {
	wanted := t.Tunnels
	if len(t.Lost) > 0 {
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
		return model.Faultf(model.CodeInvalidConf, "use a back end that the kernel carries: vxlan, host-gw",
			"back end %s: nothing here runs tunnels in user space", wanted[0].Backend)
	}
	if err := r.cfg.Runner.Keep(ctx, wanted); err != nil {
		return fmt.Errorf("tunnels: %w", err)
	}
	r.running = wanted
	return nil
}
