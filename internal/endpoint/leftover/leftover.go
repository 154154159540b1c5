// SPDX-License-Identifier: Apache-2.0

package leftover

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

// Scope says whose things go.
type Scope struct {
	Network string
	// Key, unless nil, is the one attachment that goes. Otherwise all of the network go that are not in Valid.
	Key   *model.AttachmentKey
	Valid []model.AttachmentKey
}

// Container tells whether what is a container's, nobody knows of which interface, goes.
func (s Scope) Container(network, id string) bool {
	if network != s.Network {
		return false
	}
	if s.Key != nil {
		return id == s.Key.ContainerID
	}
	return !slices.ContainsFunc(s.Valid, func(k model.AttachmentKey) bool { return k.ContainerID == id })
}

// finder finds what the plugins of some types leave.
type finder struct {
	what  string
	types []string
	take  func(ctx context.Context, n *node, s Scope) error
}

// finders are all that are known, in the order in which they work.
func finders() []finder {
	return []finder{
		{"masquerade of iptables", []string{"bridge", "ptp"}, takeChains},
		{"masquerade of nft", []string{"bridge", "ptp"}, takeMasquerade},
		{"MAC spoof check", []string{"bridge"}, takeSpoofCheck},
		{"bandwidth", []string{"bandwidth"}, takeIfb},
		{"ports of iptables", []string{"portmap"}, takePortChains},
		{"port chains of iptables", []string{"portmap"}, takeSharedPortChains},
		{"ports of nft", []string{"portmap"}, takePorts},
	}
}

// Take takes away what plugins of the given types left of the attachments in the scope. It goes on after an error.
func Take(ctx context.Context, host *kernel.Conn, types []string, s Scope) error {
	n := &node{host: host}
	var errs []error
	for _, f := range finders() {
		if !slices.ContainsFunc(types, func(t string) bool { return slices.Contains(f.types, t) }) {
			continue
		}
		if err := f.take(ctx, n, s); err != nil {
			errs = append(errs, fmt.Errorf("%s left by another plugin: %w", f.what, err))
		}
	}
	return errors.Join(errs...)
}

// node is the node's namespace with what was already asked of it.
type node struct {
	host   *kernel.Conn
	listed bool
	chains []nft.Place
}

// places are all nft chains of the node, those of the newer iptables included.
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

// tables is what of one family's iptables has to be looked at.
type tables struct {
	state.IPTables
	conn *iptables.Conn
	// guess tells that there may be nothing.
	guess bool
}

// take takes away what choose chooses. Where nobody knows whether there is anything, a node without the program is no
// error.
func (t tables) take(ctx context.Context, choose func(*iptables.Table) iptables.Choice) error {
	err := t.conn.Take(ctx, t.IPTables, choose)
	if t.guess && errors.Is(err, iptables.ErrAbsent) {
		return nil
	}
	return err
}

// iptables tells where the iptables programs have to be asked about a table: where it has a chain of the wanted kind
// that may be of who goes, or is of the older iptables, of which nothing is known without asking.
func (n *node) iptables(ctx context.Context, table string, s Scope, kind func(name string) bool) ([]tables, error) {
	places, err := n.places(ctx)
	if err != nil {
		return nil, err
	}
	var out []tables
	for _, v6 := range []bool{false, true} {
		family := "ip"
		if v6 {
			family = "ip6"
		}
		t := state.IPTables{IPv6: v6, Table: table}
		wanted := func(p nft.Place) bool {
			return p.Family == family && p.Table == table && kind(p.Chain) && (s.Key == nil || s.names(p.Chain))
		}
		if slices.ContainsFunc(places, wanted) {
			out = append(out, tables{t, n.host.IPTables().Of(iptables.NFT), false})
		}
		older, err := n.host.LegacyTables(v6)
		if err != nil {
			return nil, err
		}
		if slices.Contains(older, table) {
			out = append(out, tables{t, n.host.IPTables().Of(iptables.Legacy), true})
		}
	}
	return out, nil
}
