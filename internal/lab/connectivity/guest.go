// SPDX-License-Identifier: Apache-2.0

package connectivity

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
)

// probeFromGuest probes all pairs from a VM in one call, because each command in a guest is slow.
func (p prober) probeFromGuest(ctx context.Context, from int, pairs []pair) {
	var targets []Target
	var of []*pair
	for i := range pairs {
		q := &pairs[i]
		if q.from != from {
			continue
		}
		to := p.endpoints[q.to]
		if problem := p.endpoints[from].Problem + to.Problem; problem != "" {
			q.err = errors.New(problem)
			continue
		}
		for _, addr := range to.family(q.proto) {
			at := netip.AddrPortFrom(addr, 0)
			if q.proto.name() != "icmp" {
				l, ok := p.listeners[listenKey{to.Name, addr, q.proto}]
				if !ok || l.err != nil {
					q.err = errors.Join(errNoListener, l.err)
					continue
				}
				at = l.addr
			}
			targets, of = append(targets, Target{q.proto, at, to.Name}), append(of, q)
		}
	}
	if len(targets) == 0 {
		return
	}
	for i, err := range p.endpoints[from].Guest.Probe(ctx, targets) {
		if err != nil && of[i].err == nil {
			of[i].err = fmt.Errorf("to %s: %w", targets[i].To.Addr(), err)
		}
	}
}
