// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/kernel/effect"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// probes returns the probes of addresses that this Apply is about to add.
func (a *apply) probes() []state.Effect {
	var out []state.Effect
	for _, e := range a.effects {
		if e.When != state.BeforeAddrs || e.Space != state.Pod {
			continue
		}
		e.Addrs = slices.DeleteFunc(slices.Clone(e.Addrs), func(addr netip.Addr) bool {
			return !a.pod.addrs.adds(e.Link, addr)
		})
		if len(e.Addrs) > 0 {
			out = append(out, e)
		}
	}
	return out
}

// probe brings the pod's links up by batch, and the node's ends of them, and probes. The filters are in force by then.
func (a *apply) probe(ctx context.Context, batch []*rtnl.Message, probes []state.Effect) error {
	if err := a.pod.conn.rtnl.Send(ctx, batch); err != nil {
		return in(state.Pod, err)
	}
	if a.host.conn != nil {
		// A link that is read has its carrier (see settle).
		up := a.host.peersUpBatch()
		if err := a.host.conn.rtnl.Send(ctx, append(up, a.host.settings.readBatch()...)); err != nil {
			return in(state.Host, err)
		}
		a.peersUp = true
	}
	if err := a.pod.conn.rtnl.Send(ctx, a.pod.settings.readBatch()); err != nil {
		return in(state.Pod, err)
	}
	if err := effect.Probe(ctx, a.pod.conn.ns, probes); err != nil {
		return fmt.Errorf("duplicate address detection: %w", err)
	}
	return nil
}
