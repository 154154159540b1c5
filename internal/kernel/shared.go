// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/state"
)

const enodev = unix.ENODEV

// RemoveShared deletes the shared links and tables that f names and that are no longer used: a bridge that weft made
// and that has only shared ports, which are deleted with it, a shared port (a VLAN's gateway) whose VLAN no other port
// has, a host shim without routes, a table without elements. Addresses are deleted with their link; shared sysctls stay.
func (s Spaces) RemoveShared(ctx context.Context, f state.Fragment) error {
	v, err := readView(ctx, state.Host, s.Host, f.Host)
	if err != nil {
		return err
	}
	var errs []error
	if len(v.want.Tables) > 0 {
		n, err := v.conn.Netfilter()
		if err != nil {
			return in(v.name, err)
		}
		if err := n.RemoveShared(ctx, v.want.Tables); err != nil {
			errs = append(errs, in(v.name, fmt.Errorf("nft: %w", err)))
		}
	}
	var unused []link.Found
	for _, l := range v.want.Links {
		have, ok := v.links.found[l.Name]
		if !ok || !l.Shared || l.Kind == "" || have.Kind != l.Kind || !weftMade(l, have) {
			continue
		}
		delete(v.links.found, l.Name) // named twice, deleted once
		goes, err := v.unused(ctx, have)
		if err != nil {
			errs = append(errs, in(v.name, err))
		}
		for _, f := range goes {
			if !slices.ContainsFunc(unused, func(o link.Found) bool { return o.Index == f.Index }) {
				unused = append(unused, f)
			}
		}
	}
	return errors.Join(append(errs, in(v.name, v.delete(ctx, unused)))...)
}

// unused returns a shared link with the links that are deleted with it, nothing when it is in use.
func (v *view) unused(ctx context.Context, have link.Found) ([]link.Found, error) {
	if have.Kind == state.Macvlan {
		return v.unusedShim(ctx, have)
	}
	bridge, port := have, have
	if have.Kind == state.Veth {
		if have.MasterIndex == 0 && !have.PeerAway { // the end that has the addresses
			var err error
			if port, _, err = v.conn.reader.LinkByIndex(ctx, have.PeerIndex); err != nil {
				return nil, err
			}
		}
		if bridge = (link.Found{Index: port.MasterIndex}); bridge.Index == 0 {
			return []link.Found{have}, nil
		}
	}
	ports, err := v.conn.reader.Links(ctx, bridge.Index)
	if err != nil {
		return nil, err
	}
	var shared, others []link.Found
	for _, p := range ports {
		if strings.HasPrefix(p.Alias, SharedMark) {
			shared = append(shared, p)
		} else {
			others = append(others, p)
		}
	}
	if have.Kind != state.Veth {
		if len(others) > 0 {
			return nil, nil
		}
		return append(shared, have), nil
	}
	used, err := v.vlanUsed(ctx, port, others)
	if used || err != nil {
		return nil, err
	}
	return []link.Found{port}, nil
}

// unusedShim returns a host shim if no pod's route leads over it.
func (v *view) unusedShim(ctx context.Context, have link.Found) ([]link.Found, error) {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		routes, err := v.conn.reader.Routes(ctx, family, have.Index, unix.RT_TABLE_MAIN)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(routes, func(r link.FoundRoute) bool { return r.Dst.IsSingleIP() && !r.ByKernel() }) {
			return nil, nil
		}
	}
	return []link.Found{have}, nil
}

// vlanUsed reports whether any of the other ports of a bridge has the shared port's VLAN.
func (v *view) vlanUsed(ctx context.Context, port link.Found, others []link.Found) (bool, error) {
	all, err := v.conn.reader.PortVLANs(ctx, 0)
	if err != nil {
		return true, err
	}
	mine := tableOf(all[port.Index])
	for _, other := range others {
		theirs := tableOf(all[other.Index])
		for id := range theirs {
			if theirs[id].has && mine[id].pvid {
				return true, nil
			}
		}
	}
	return false, nil
}
