// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/kernel/iptables"
	"github.com/weft-net/weft/internal/kernel/netfilter"
	"github.com/weft-net/weft/internal/kernel/nft"
	"github.com/weft-net/weft/internal/state"
)

// filters answers what is asked of packet filters.
type filters struct{ *netfilter.Filters }

// dropped looks for a chain that drops what is forwarded; that of the iptables programs comes first, since who knows
// of it can do something about it.
func (c filters) dropped(ctx context.Context, family string) (state.Answer, error) {
	if family, legacy := strings.CutPrefix(family, state.LegacyDropped); legacy {
		return c.legacyDropped(ctx, family == "6")
	}
	n, err := c.Netfilter()
	if err != nil {
		return state.Answer{}, err
	}
	drops, err := n.Drops(ctx)
	if err != nil {
		return state.Answer{}, err
	}
	own := map[string]string{"4": "ip", "6": "ip6"}[family]
	var out state.Answer
	for _, d := range drops {
		ofIPTables := d.Family == own && d.Table == "filter" && d.Chain == "FORWARD"
		if ofIPTables || !out.Found && (d.Family == own || d.Family == "inet") {
			out = state.Answer{Found: true, Value: d.String()}
		}
		if ofIPTables {
			break
		}
	}
	return out, nil
}

// legacyDropped looks for the same in the tables that nft does not know of. Where they are and no program can read
// them, the answer says so.
func (c filters) legacyDropped(ctx context.Context, v6 bool) (state.Answer, error) {
	older, err := c.LegacyTables(v6)
	if err != nil || !slices.Contains(older, "filter") {
		return state.Answer{}, err
	}
	t := state.IPTables{IPv6: v6, Table: "filter", Legacy: true}
	if reads, err := c.IPTables().ReadsLegacy(ctx, v6); err != nil || !reads {
		return state.Answer{Value: t.String()}, err
	}
	have, err := c.IPTables().Save(ctx, t)
	if err != nil || !have.Chain("FORWARD").Drops() {
		return state.Answer{}, err
	}
	return state.Answer{Found: true, Value: t.String() + " chain FORWARD"}, nil
}

// chain looks for a chain of iptables. What the older programs have in the kernel is not known without asking them: any
// chain may be there when its table is.
func (c filters) chain(ctx context.Context, name string) (state.Answer, error) {
	n, err := c.Netfilter()
	if err != nil {
		return state.Answer{}, err
	}
	places, err := n.Places(ctx)
	if err != nil {
		return state.Answer{}, err
	}
	var p nft.Place
	if words := strings.Fields(name); len(words) == 3 {
		p = nft.Place{Family: words[0], Table: words[1], Chain: words[2]}
	}
	var kinds []string
	if slices.Contains(places, p) {
		kinds = append(kinds, state.KindNFT)
	}
	older, err := c.LegacyTables(p.Family == "ip6")
	if slices.Contains(older, p.Table) {
		kinds = append(kinds, state.KindLegacy)
	}
	return state.Answer{Found: len(kinds) > 0, Value: strings.Join(kinds, " ")}, err
}

func (c filters) firewalld(ctx context.Context) (state.Answer, error) {
	running, err := c.Firewalld().Running(ctx)
	return state.Answer{Found: running}, err
}

// program tells whether the host has a program, and where.
func (c filters) program(name string) state.Answer {
	path, err := iptables.Find(c.Root, name)
	return state.Answer{Found: err == nil, Value: path}
}
