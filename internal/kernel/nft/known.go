// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"slices"

	"github.com/weft-net/weft/internal/kernel/nft/lang"
	"github.com/weft-net/weft/internal/state"
)

// known is what a Conn remembers of the ruleset, so that the usual ADD need not read it.
type known struct {
	// gen is the generation at which the tables in seen were last known to be whole; 0 is none.
	gen  uint32
	seen map[string]*table // by label; shared ones only
	// drops are the foreign base chains that drop what is forwarded, as of gen; nil when nobody asked.
	drops []Drop
}

// remember notes the structure of shared tables that is now known to be whole.
func (k *known) remember(ws []*table) {
	for _, w := range ws {
		if !w.Shared {
			continue
		}
		t := k.seen[w.Label()]
		if t == nil {
			t = newTable(w.Family, w.Name, true)
			k.seen[w.Label()] = t
		}
		for _, s := range w.Sets {
			s.Elements = nil
			t.Sets = append(slices.DeleteFunc(t.Sets, func(o lang.Set) bool { return o.Name == s.Name }), s)
		}
		for _, ch := range w.Chains {
			t.Chains = append(slices.DeleteFunc(t.Chains, func(o lang.Chain) bool { return o.Name == ch.Name }), ch)
		}
		if w.full != nil {
			t.full = w.full
		}
	}
}

// advance notes the generation that our own commit made; 0 is no change.
func (k *known) advance(gen uint32) {
	if gen != 0 {
		k.gen = gen
	}
}

// forget gives up what was known of the ruleset.
func (k *known) forget() { k.gen, k.seen, k.drops = 0, map[string]*table{}, nil }

// followed notes our own commit of no certain generation: only if it is the next one was there no other between.
func (k *known) followed(gen uint32) {
	if gen != 0 && k.gen != 0 && gen == k.gen+1 {
		k.gen = gen
	} else if gen != 0 {
		k.gen = 0
	}
}

// covers reports whether the structure that in names was seen whole.
func (t *table) covers(in state.Table) bool {
	for _, s := range in.Sets {
		had, ok := t.Set(s.Name)
		if !ok || had.Source.Key != s.Key || had.Source.Data != s.Data || had.Source.Interval != s.Interval ||
			had.Source.Learns != s.Learns {
			return false
		}
	}
	for _, ch := range in.Chains {
		had, ok := t.Chain(ch.Name)
		g := had.Source
		if !ok || g.Type != ch.Type || g.Hook != ch.Hook || g.Priority != ch.Priority || g.Policy != ch.Policy ||
			g.Device != ch.Device || !slices.Equal(g.Rules, ch.Rules) {
			return false
		}
	}
	return true
}
