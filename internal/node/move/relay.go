// SPDX-License-Identifier: Apache-2.0

package move

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// relayTime is how long after a switch other nodes may still send to where the machine was.
const relayTime = time.Minute

// Relay is an address of a machine that comes here, or has come a short while ago, and the node that it comes from,
// which passes on what others still send there.
type Relay struct {
	From string
	To   netip.Addr
}

// relayed is the node that a machine comes from, and until when that matters; zero while the machine is awaited.
type relayed struct {
	from  string
	until time.Time
}

// Relays are those of all machines, in order.
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

func (f *follower) setRelay(r *relayed) {
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

// comesFrom notes where the machine is that is awaited.
func (f *follower) comesFrom() {
	if node, _ := f.elsewhere(); node != "" {
		f.setRelay(&relayed{from: node})
	}
}

// hasCome notes that a machine is here; what is passed on is accepted for a while longer.
func (f *follower) hasCome() {
	f.left.Store(0)
	f.arrived()
}

// arrived has the time begin after which nothing is passed on any more.
func (f *follower) arrived() {
	if r := f.relay.Load(); r != nil && r.until.IsZero() {
		f.relay.Store(&relayed{r.from, f.m.cfg.Now().Add(relayTime)})
		f.m.saveRelays()
	}
}

// relayEnds sends a word when nothing is passed on any more; nil where nothing is.
func (f *follower) relayEnds() <-chan time.Time {
	if r := f.relay.Load(); r != nil {
		return f.m.cfg.After(max(r.until.Sub(f.m.cfg.Now()), 0))
	}
	return nil
}
