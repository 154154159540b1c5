// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// A gateway has three seconds to reply, polled every few milliseconds: for a link that has just come up the kernel
// first performs duplicate address detection for its own address. Resolution is requested repeatedly, because the
// kernel gives up.
const (
	gatewayTries = 300
	gatewayAsks  = 25
	gatewayPause = 10 * time.Millisecond
)

// answerGateways returns the MAC addresses of the gateways of the routes over a link.
func (c *Namespace) answerGateways(ctx context.Context, f link.Found) (state.Answer, error) {
	if f.Index == 0 || f.Dead() {
		return state.Answer{}, nil
	}
	ways, err := c.answerRoutes(ctx, f, false)
	if err != nil {
		return state.Answer{}, err
	}
	var gateways []netip.Addr
	for _, r := range ways.Routes {
		if r.Gw.IsValid() && !slices.Contains(gateways, r.Gw) {
			gateways = append(gateways, r.Gw)
		}
	}
	out := state.Answer{Found: true, Link: f.Link}
	for _, gw := range gateways {
		mac, err := c.neighbor(ctx, f, gw)
		if err != nil {
			return state.Answer{}, err
		}
		if !mac.IsZero() {
			out.Neighs = append(out.Neighs, state.Neigh{Link: f.Name, IP: gw, MAC: mac})
		}
	}
	return out, nil
}

// neighbor returns the MAC address of a neighbor; zero when there is no reply.
func (c *Namespace) neighbor(ctx context.Context, f link.Found, ip netip.Addr) (state.MAC, error) {
	n := state.Neigh{Link: f.Name, IP: ip}
	for try := range gatewayTries {
		var mac state.MAC
		have, ok, err := c.Reader.Neigh(ctx, n, f.Index)
		if ok && have.Known {
			mac = have.MAC
		}
		if err != nil || !mac.IsZero() {
			return mac, err
		}
		if try%gatewayAsks == 0 {
			if err := c.Socket.Send(ctx, []*rtnl.Message{link.ResolveNeigh(n, f.Index)}); err != nil {
				return mac, err
			}
		}
		select {
		case <-ctx.Done():
			return mac, ctx.Err()
		case <-time.After(gatewayPause):
		}
	}
	return state.MAC{}, nil
}
