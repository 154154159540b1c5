// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/weft-net/weft/internal/kernel/iptables"
	"github.com/weft-net/weft/internal/kernel/netfilter"
	"github.com/weft-net/weft/internal/kernel/nft"
	"github.com/weft-net/weft/internal/state"
)

// filters answers some queries about packet filters at one time.
type filters struct {
	*netfilter.Filters
	drops func() ([]nft.Drop, error) // nil: not read yet
}

// dropped finds a chain that drops forwarded packets; that of the iptables programs is preferred, because the caller
// can add rules to it.
func (c *filters) dropped(ctx context.Context, family string) (state.Answer, error) {
	if family, legacy := strings.CutPrefix(family, state.LegacyForwardDrop); legacy {
		return c.legacyDropped(ctx, family == "6")
	}
	if c.drops == nil {
		c.drops = sync.OnceValues(func() ([]nft.Drop, error) { return c.readDrops(ctx) })
	}
	drops, err := c.drops()
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

func (c *filters) readDrops(ctx context.Context) ([]nft.Drop, error) {
	n, err := c.Netfilter()
	if err != nil {
		return nil, err
	}
	return n.Drops(ctx)
}

// legacyDropped does the same for the tables that nft does not show. If they exist and no program can read them, the
// answer says so.
func (c *filters) legacyDropped(ctx context.Context, v6 bool) (state.Answer, error) {
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

// chain finds a chain of iptables. The chains of iptables-legacy are unknown without its programs: any chain may exist
// when its table does.
func (c *filters) chain(ctx context.Context, name string) (state.Answer, error) {
	n, err := c.Netfilter()
	if err != nil {
		return state.Answer{}, err
	}
	places, err := n.Places(ctx)
	if err != nil {
		return state.Answer{}, err
	}
	p := place(name)
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

// commented counts the rules of an nftables chain that have a comment.
func (c *filters) commented(ctx context.Context, name, comment string) (state.Answer, error) {
	n, err := c.Netfilter()
	if err != nil {
		return state.Answer{}, err
	}
	rules, err := n.RulesOf(ctx, place(name))
	if err != nil {
		return state.Answer{}, err
	}
	var out state.Answer
	for _, r := range rules {
		if r.Comment == comment {
			out.Count++
		}
	}
	out.Found = out.Count > 0
	return out, nil
}

// place parses "family table chain".
func place(name string) nft.Place {
	words := strings.Fields(name)
	if len(words) != 3 {
		return nft.Place{}
	}
	return nft.Place{Family: words[0], Table: words[1], Chain: words[2]}
}

func (c *filters) firewalld(ctx context.Context) (state.Answer, error) {
	running, err := c.Firewalld().Running(ctx)
	return state.Answer{Found: running}, err
}

// program reports whether the host has a program, and returns its path.
func (c *filters) program(name string) state.Answer {
	path, err := iptables.Find(c.Root, name)
	return state.Answer{Found: err == nil, Value: path}
}
