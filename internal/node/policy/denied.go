// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/kernel/nflog"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy"
)

// Teller tells people about policies, behind the caller's back.
type Teller interface {
	// Faults says what of a policy could not be understood; none: all of it is.
	Faults(key model.PolicyKey, faults []string)
}

// tell tells what is wrong with a policy. The lock is held.
func (e *Enforcer) tell(key model.PolicyKey, faults []string) {
	if len(faults) > 0 {
		e.log.Warn("policy is not understood in full; what is not allows nothing", "policy", key.String(), "faults", faults)
	}
	if e.cfg.Told != nil {
		e.cfg.Told.Faults(key, faults)
	}
}

// listen logs packets that are denied on the node, with the names of the pods and of the policies, until ctx ends.
func (e *Enforcer) listen(ctx context.Context) error {
	for {
		l, err := nflog.Listen(ctx, nil, e.cfg.LogGroup, func(p nflog.Packet) { e.deniedPacket(p, policy.Place{}) })
		if err == nil {
			<-l.Done()
		}
		if ctx.Err() != nil {
			return nil
		}
		e.log.Warn("denied packets are not logged", "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-e.cfg.After(time.Minute):
		}
	}
}

// mostTold is how many packets of a pod's namespace are logged in a second.
const mostTold = 50

// hear has packets that are denied in a pod's namespace be logged, too. Where it cannot be, it is tried again when the
// place is looked at again. It is the turn of who writes in pods.
func (e *Enforcer) hear(p policy.Place, at *place) {
	if e.cfg.LogGroup == 0 {
		return
	}
	if at.deaf != nil {
		select {
		case <-at.heard:
			at.deaf()
		default:
			return
		}
	}
	if e.isHeard(p, at) {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	l, err := nflog.Listen(ctx, at.ns, e.cfg.LogGroup, e.calmly(ctx, p))
	if err != nil {
		cancel()
		e.unheard(p, at, err)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	at.deaf, at.heard, at.unheard = func() { cancel(); l.Close() }, l.Done(), false
}

// unheard says once that denied packets of a pod are not logged.
func (e *Enforcer) unheard(p policy.Place, at *place, err error) {
	e.mu.Lock()
	said := at.unheard
	at.deaf, at.unheard = nil, true
	e.mu.Unlock()
	if !said {
		e.log.Warn("denied packets of a pod are not logged", "pod", p.Pod.String(), "err", err)
	}
}

// isHeard tells whether another place of the pod hears the whole namespace.
func (e *Enforcer) isHeard(p policy.Place, at *place) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for q, o := range e.places {
		if q != p && q.Pod == p.Pod && o.id == at.id && o.deaf != nil {
			return true
		}
	}
	return false
}

// calmly logs what is heard in a pod, but not faster than people read: who is root there can have rules of his own tell
// the group anything, as often as he likes. What is too much waits, and is lost in the kernel.
func (e *Enforcer) calmly(ctx context.Context, at policy.Place) func(nflog.Packet) {
	since, told := e.cfg.Now(), 0
	return func(p nflog.Packet) {
		if now := e.cfg.Now(); now.Sub(since) >= time.Second {
			since, told = now, 0
		}
		if told++; told > mostTold {
			select {
			case <-ctx.Done():
			case <-e.cfg.After(time.Second):
			}
			since, told = e.cfg.Now(), 1
		}
		if ctx.Err() == nil {
			e.deniedPacket(p, at)
		}
	}
}

func (e *Enforcer) deniedPacket(p nflog.Packet, at policy.Place) {
	e.mu.Lock()
	network := e.networkOf(p, at)
	from, to := e.index.Holder(network, p.From.Addr()), e.index.Holder(network, p.To.Addr())
	e.mu.Unlock()
	e.log.Info("denied", "by", p.Prefix, "packet", p.String(), "from", from.String(), "to", to.String())
}

// networkOf is the network of the interface, of those that are judged at a place, that a packet came from or goes to;
// the cluster's where it is not known. The lock is held.
func (e *Enforcer) networkOf(p nflog.Packet, at policy.Place) (network string) {
	for _, l := range e.local {
		_, in := placeIn(l)
		here := !in
		if !at.OnNode() {
			here = in && l.Pod == at.Pod // whichever of its places it was: they tell one group
		}
		if !here || !slices.Contains(l.Addrs, p.From.Addr()) && !slices.Contains(l.Addrs, p.To.Addr()) {
			continue
		}
		if network = l.Network; network == "" {
			break
		}
	}
	return network
}
