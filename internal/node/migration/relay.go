// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// relayTime is how long after a switch other nodes may still send to the source node.
const relayTime = time.Minute

// Relay is an address of a VM that is coming to this node, or came recently, and its source node, which forwards
// packets that still arrive there.
type Relay struct {
	From string
	To   netip.Addr
}

// relayed is the source node of a VM, and until when it may forward; zero while the VM is awaited.
type relayed struct {
	from  string
	until time.Time
}

// Relays returns those of all VMs, sorted.
func (m *Mover) Relays() []Relay {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Relay
	for _, s := range m.before {
		if r := s.relayed(m.cfg.Now()); r != nil {
			for _, a := range s.Addrs {
				out = append(out, Relay{r.from, a})
			}
		}
	}
	for _, f := range m.followers {
		r := f.relay.Load()
		if r == nil || !r.until.IsZero() && !m.cfg.Now().Before(r.until) {
			continue
		}
		for _, a := range f.addrs {
			out = append(out, Relay{r.from, a})
		}
	}
	slices.SortFunc(out, func(a, b Relay) int { return cmp.Or(cmp.Compare(a.From, b.From), a.To.Compare(b.To)) })
	return slices.Compact(out)
}

func (f *vmFollower) setRelay(r *relayed) {
	if before := f.relay.Swap(r); (before == nil) != (r == nil) || r != nil && before.from != r.from {
		f.m.saveRelays()
		f.m.relaysChanged()
	}
}

func (m *Mover) relaysChanged() {
	if m.cfg.RelaysChanged != nil {
		m.cfg.RelaysChanged()
	}
}

// setRelaySource stores the node of an awaited VM.
func (f *vmFollower) setRelaySource() {
	if node, _ := f.otherNode(); node != "" {
		f.setRelay(&relayed{from: node})
	}
}

// beginRelayEnd starts the time during which forwarded packets are still accepted.
func (f *vmFollower) beginRelayEnd() {
	f.left.Store(nil)
	f.arrived()
}

// arrived starts that time if the VM is not awaited any more.
func (f *vmFollower) arrived() {
	if r := f.relay.Load(); r != nil && r.until.IsZero() {
		f.relay.Store(&relayed{r.from, f.m.cfg.Now().Add(relayTime)})
		f.m.saveRelays()
	}
}

// relayEnds returns a channel that fires when forwarded packets are not accepted any more; nil if none are.
func (f *vmFollower) relayEnds() <-chan time.Time {
	if r := f.relay.Load(); r != nil {
		return f.m.cfg.After(max(r.until.Sub(f.m.cfg.Now()), 0))
	}
	return nil
}
