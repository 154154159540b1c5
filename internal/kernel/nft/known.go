// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"slices"

	"github.com/weft-net/weft/internal/kernel/nft/lang"
	"github.com/weft-net/weft/internal/state"
)

// known caches what a Conn knows of the ruleset, so that the usual ADD need not read it.
type known struct {
	// gen is the generation at which the tables in seen were last known to be complete; 0 is none.
	gen  uint32
	seen map[string]*table // by label; shared ones only
	// drops are the foreign base chains that drop forwarded packets, as of gen; nil when they were not read.
	drops []Drop
}

// store records the structure of shared tables that is now known to be complete.
func (k *known) store(ws []*table) {
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

// advance records the generation of our own commit; 0 is no change.
func (k *known) advance(gen uint32) {
	if gen != 0 {
		k.gen = gen
	}
}

// clear discards the cache.
func (k *known) clear() { k.gen, k.seen, k.drops = 0, map[string]*table{}, nil }

// followed records our own commit without a guard: the cache stays valid only if the generation is the next one.
func (k *known) followed(gen uint32) {
	if gen != 0 && k.gen != 0 && gen == k.gen+1 {
		k.gen = gen
	} else if gen != 0 {
		k.gen = 0
	}
}

// covers reports whether the structure in the value is known to be complete.
func (t *table) covers(in state.Table) bool {
	for _, s := range in.Sets {
		had, ok := t.Set(s.Name)
		if !ok || had.Source.Key != s.Key || had.Source.Data != s.Data || had.Source.Interval != s.Interval ||
			had.Source.DynamicSize != s.DynamicSize {
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
