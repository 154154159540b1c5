// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/kernel/iptables"
	"github.com/weft-net/weft/internal/kernel/nft"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Scope selects the attachments whose leftovers are removed.
type Scope struct {
	Network string
	// Key, unless nil, is the only attachment in the scope. Otherwise all of the network that are not in Valid are.
	Key   *model.AttachmentKey
	Valid []model.AttachmentKey
}

// MatchesContainer reports whether an object of a container, whose interface is unknown, is in the scope.
func (s Scope) MatchesContainer(network, id string) bool {
	if network != s.Network {
		return false
	}
	if s.Key != nil {
		return id == s.Key.ContainerID
	}
	return !slices.ContainsFunc(s.Valid, func(k model.AttachmentKey) bool { return k.ContainerID == id })
}

// remover removes what the plugins of some types leave.
type remover struct {
	what   string
	types  []string
	remove func(ctx context.Context, n *node, s Scope) error
}

// removers returns all removers in their order.
func removers() []remover {
	return []remover{
		{"masquerade of iptables", []string{"bridge", "ptp"}, removeMasqueradeChains},
		{"masquerade of nft", []string{"bridge", "ptp"}, removeMasqueradeRules},
		{"MAC spoof check", []string{"bridge"}, removeSpoofCheck},
		{"bandwidth", []string{"bandwidth"}, removeIfb},
		{"ports of iptables", []string{"portmap"}, removePortChains},
		{"port chains of iptables", []string{"portmap"}, removeSharedPortChains},
		{"ports of nft", []string{"portmap"}, removePortRules},
	}
}

// Remove removes what plugins of these types have left of the attachments in the scope. It continues after an error.
func Remove(ctx context.Context, host *kernel.Conn, types []string, s Scope) error {
	n := &node{host: host}
	var errs []error
	for _, f := range removers() {
		if !slices.ContainsFunc(types, func(t string) bool { return slices.Contains(f.types, t) }) {
			continue
		}
		if err := f.remove(ctx, n, s); err != nil {
			errs = append(errs, fmt.Errorf("%s left by another plugin: %w", f.what, err))
		}
	}
	return errors.Join(errs...)
}

// node is the node's namespace with a cached list of chains.
type node struct {
	host   *kernel.Conn
	listed bool
	chains []nft.Place
}

// places returns all nftables chains of the node, including those of iptables-nft.
func (n *node) places(ctx context.Context) ([]nft.Place, error) {
	if n.listed {
		return n.chains, nil
	}
	c, err := n.host.Netfilter()
	if err != nil {
		return nil, err
	}
	if n.chains, err = c.Places(ctx); err != nil {
		return nil, err
	}
	n.listed = true
	return n.chains, nil
}

// ruleTable is an iptables table of one family and backend.
type ruleTable struct {
	state.IPTables
	conn *iptables.Conn
	// maybeAbsent: it is unknown whether the table has matching chains.
	maybeAbsent bool
}

// remove removes what choose selects. If it is unknown whether there is anything, a missing program is no error.
func (t ruleTable) remove(ctx context.Context, choose func(*iptables.Table) iptables.Choice) error {
	err := t.conn.Delete(ctx, t.IPTables, choose)
	if t.maybeAbsent && errors.Is(err, iptables.ErrAbsent) {
		return nil
	}
	return err
}

// iptables returns the tables that the iptables programs must read: those with a chain of the kind that may be in the
// scope, and legacy tables, whose chains the kernel does not list.
func (n *node) iptables(ctx context.Context, table string, s Scope, kind func(name string) bool) ([]ruleTable, error) {
	places, err := n.places(ctx)
	if err != nil {
		return nil, err
	}
	var out []ruleTable
	for _, v6 := range []bool{false, true} {
		family := "ip"
		if v6 {
			family = "ip6"
		}
		t := state.IPTables{IPv6: v6, Table: table}
		wanted := func(p nft.Place) bool {
			return p.Family == family && p.Table == table && kind(p.Chain) && (s.Key == nil || s.ownsChain(p.Chain))
		}
		if slices.ContainsFunc(places, wanted) {
			out = append(out, ruleTable{t, n.host.IPTables().Of(iptables.NFT), false})
		}
		older, err := n.host.LegacyTables(v6)
		if err != nil {
			return nil, err
		}
		if slices.Contains(older, table) {
			out = append(out, ruleTable{t, n.host.IPTables().Of(iptables.Legacy), true})
		}
	}
	return out, nil
}
