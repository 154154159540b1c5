// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-net/weft/internal/kernel/firewalld"
	"github.com/weft-net/weft/internal/kernel/netfilter"
	"github.com/weft-net/weft/internal/state"
)

// filters are the packet filters of a space: tables of nft, chains of iptables, addresses in firewalld's zones. Each
// has its own program or socket, which is used only when the space has such objects.
type filters struct {
	space   state.SpaceName
	tables  []state.Table
	chains  []state.IPTables
	sources []state.ZoneSource
	filters *netfilter.Filters // nil when the namespace was deleted
}

// apply commits them: iptables and firewalld first, then the tables of nft in one transaction.
func (n filters) apply(ctx context.Context) error {
	if len(n.chains) > 0 {
		if err := n.filters.IPTables().Apply(ctx, n.chains); err != nil {
			return err
		}
	}
	if len(n.sources) > 0 {
		if err := n.filters.Firewalld().Apply(ctx, n.sources); err != nil {
			return err
		}
	}
	if len(n.tables) == 0 {
		return nil
	}
	tables, err := n.filters.Netfilter()
	if err != nil {
		return err
	}
	return aboutNFT(tables.Apply(ctx, n.tables))
}

// remove removes all of them, continuing after errors.
func (n filters) remove(ctx context.Context) error {
	var errs []error
	if len(n.chains) > 0 {
		errs = append(errs, n.filters.IPTables().Remove(ctx, n.chains))
	}
	if len(n.sources) > 0 {
		errs = append(errs, n.filters.Firewalld().Remove(ctx, n.sources))
	}
	if len(n.tables) > 0 {
		tables, err := n.filters.Netfilter()
		if err == nil {
			err = aboutNFT(tables.Remove(ctx, n.tables))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// diff adds the differences. An address is in no zone while firewalld does not run.
func (n filters) diff(ctx context.Context, out *diffs) error {
	if len(n.tables) > 0 {
		tables, err := n.filters.Netfilter()
		if err != nil {
			return err
		}
		different, err := tables.Diff(ctx, n.tables)
		if err != nil {
			return aboutNFT(err)
		}
		out.addAll(different)
	}
	if len(n.chains) > 0 {
		d, err := n.filters.IPTables().Diff(ctx, n.chains)
		if err != nil {
			return err
		}
		out.addAll(d)
	}
	for _, want := range n.sources {
		zone, err := n.zoneOf(ctx, want)
		if err != nil {
			return err
		}
		if zone != want.Zone {
			have := ""
			if zone != "" {
				have = state.ZoneSource{Zone: zone, Source: want.Source}.String()
			}
			out.add(want, have)
		}
	}
	return nil
}

// report adds the existing ones.
func (n filters) report(ctx context.Context, out *state.Space) (err error) {
	if len(n.tables) > 0 {
		if out.Tables, err = n.readTables(ctx); err != nil {
			return err
		}
	}
	if len(n.chains) > 0 {
		if out.IPTables, err = n.filters.IPTables().Read(ctx, n.chains); err != nil {
			return err
		}
	}
	for _, want := range n.sources {
		zone, err := n.zoneOf(ctx, want)
		if err != nil {
			return err
		}
		if zone != "" {
			out.Sources = append(out.Sources, state.ZoneSource{Zone: zone, Source: want.Source})
		}
	}
	return nil
}

func (n filters) readTables(ctx context.Context) ([]state.Table, error) {
	tables, err := n.filters.Netfilter()
	if err != nil {
		return nil, err
	}
	have, err := tables.Read(ctx, n.tables)
	return have, aboutNFT(err)
}

// zoneOf returns the zone that an address is in, "" when it is in none.
func (n filters) zoneOf(ctx context.Context, want state.ZoneSource) (string, error) {
	zone, err := n.filters.Firewalld().Zone(ctx, want)
	if errors.Is(err, firewalld.ErrAbsent) {
		return zone, nil
	}
	return zone, err
}

func aboutNFT(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("nft: %w", err)
}
