// SPDX-License-Identifier: Apache-2.0

package reader

import (
	"context"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/kernel/tc"
	"github.com/weft-net/weft/internal/state"
)

// Reader reads over one socket. It is safe for concurrent use, like the socket.
type Reader struct {
	sock *rtnl.Socket
}

// New returns a reader of the socket's namespace.
func New(sock *rtnl.Socket) *Reader { return &Reader{sock: sock} }

// allowInterrupted accepts a dump of all links' objects although it was interrupted by concurrent changes
// (NLM_F_DUMP_INTR): on a node with hundreds of pods there always are some, and such a caller reads again later. A dump
// for one link must be exact.
func allowInterrupted(m *rtnl.Message, index int) *rtnl.Message {
	m.Loose = index == 0
	return m
}

// LinksByName reads links in one exchange; missing ones are left out.
func (r *Reader) LinksByName(ctx context.Context, names []string) (map[string]link.Found, error) {
	batch := make([]*rtnl.Message, len(names))
	for i, name := range names {
		batch[i] = link.Get(name)
	}
	out := make(map[string]link.Found, len(names))
	err := r.sock.Query(ctx, batch, func(i int, body []byte) {
		// By the requested name: the kernel also finds links by their alternative names.
		if f, ok := link.Decode(body); ok && f.Name == names[i] {
			out[f.Name] = f
		}
	})
	return out, err
}

// LinkByAnyName reads a link by its name or one of its alternative names.
func (r *Reader) LinkByAnyName(ctx context.Context, name string) (found link.Found, ok bool, err error) {
	err = r.sock.Query(ctx, []*rtnl.Message{link.Get(name)}, func(_ int, body []byte) { found, ok = link.Decode(body) })
	return found, ok, err
}

// LinkByIndex reads a link by its index.
func (r *Reader) LinkByIndex(ctx context.Context, index int) (found link.Found, ok bool, err error) {
	err = r.sock.Query(ctx, []*rtnl.Message{link.GetIndex(index)}, func(_ int, body []byte) {
		found, ok = link.Decode(body)
	})
	return found, ok, err
}

// Links reads every link, by index; with a master those enslaved to it.
func (r *Reader) Links(ctx context.Context, master int) (map[int]link.Found, error) {
	out := map[int]link.Found{}
	err := r.sock.Dump(ctx, allowInterrupted(link.List(master), master), func(body []byte) {
		if f, ok := link.Decode(body); ok && (master == 0 || f.MasterIndex == master) {
			out[f.Index] = f
		}
	})
	return out, err
}

// Addrs reads the addresses of a link, of all when index is 0.
func (r *Reader) Addrs(ctx context.Context, index int) ([]link.FoundAddr, error) {
	var out []link.FoundAddr
	err := r.sock.Dump(ctx, allowInterrupted(link.ListAddrs(index), index), func(body []byte) {
		if f, ok := link.DecodeAddr(body); ok && (index == 0 || f.Index == index) {
			out = append(out, f)
		}
	})
	return out, err
}

// Groups reads the IPv6 multicast groups that a link has joined.
func (r *Reader) Groups(ctx context.Context, index int) ([]netip.Addr, error) {
	var out []netip.Addr
	err := r.sock.Dump(ctx, link.ListGroups(index), func(body []byte) {
		if group, on, ok := link.DecodeGroup(body); ok && on == index {
			out = append(out, group)
		}
	})
	return out, err
}

// Routes reads the routes of a family, of one link unless index is 0, and of one table unless that is 0. A route over
// several links is returned as one for each.
func (r *Reader) Routes(ctx context.Context, family uint8, index int, table uint32) ([]link.FoundRoute, error) {
	var out []link.FoundRoute
	err := r.sock.Dump(ctx, allowInterrupted(link.ListRoutes(family, index, table), index), func(body []byte) {
		whole, ok := link.DecodeRoute(body)
		if !ok || table != 0 && whole.Table != table {
			return
		}
		for _, f := range whole.ByLink() {
			if index == 0 || f.Index == index || f.Dst.Addr().Is4() { // the kernel has selected by all next hops
				out = append(out, f)
			}
		}
	})
	return out, err
}

// RoutesOf reads the main table's routes of a family that have a protocol number.
func (r *Reader) RoutesOf(ctx context.Context, family, protocol uint8) ([]link.FoundRoute, error) {
	var out []link.FoundRoute
	err := r.sock.Dump(
		ctx,
		allowInterrupted(link.ListRoutesOf(family, unix.RT_TABLE_MAIN, protocol), 0),
		func(body []byte) {
			if f, ok := link.DecodeRoute(body); ok && f.Protocol == protocol && f.Table == unix.RT_TABLE_MAIN {
				out = append(out, f)
			}
		},
	)
	return out, err
}

// BestRoutes reads the best route to the first address of each destination; it calls report with each answer, with ok
// false if that is not a route.
func (r *Reader) BestRoutes(
	ctx context.Context, dsts []netip.Prefix, report func(i int, f link.FoundRoute, ok bool),
) error {
	batch := make([]*rtnl.Message, 0, len(dsts))
	for _, dst := range dsts {
		batch = append(batch, link.RouteOf(dst))
	}
	return r.sock.Query(ctx, batch, func(i int, body []byte) {
		f, ok := link.DecodeRoute(body)
		report(i, f, ok)
	})
}

// LinkTo returns the index of the link over which packets to an address leave, 0 when there is no route.
func (r *Reader) LinkTo(ctx context.Context, to netip.Addr) (index int, err error) {
	err = r.sock.Query(
		ctx,
		[]*rtnl.Message{link.RouteTo(to)},
		func(_ int, body []byte) { index = link.DecodeRouteTo(body) },
	)
	return index, err
}

// Neighs reads the neighbor table, or the proxy table, of one link unless index is 0.
func (r *Reader) Neighs(ctx context.Context, index int, proxy bool) ([]link.FoundNeigh, error) {
	var out []link.FoundNeigh
	err := r.sock.Dump(ctx, allowInterrupted(link.ListNeighs(index, proxy), 0), func(body []byte) {
		if f, ok := link.DecodeNeigh(body); ok {
			out = append(out, f)
		}
	})
	return out, err
}

// PermanentNeighs reads the permanent neighbors of a link.
func (r *Reader) PermanentNeighs(ctx context.Context, on link.Found) ([]state.Neigh, error) {
	all, err := r.Neighs(ctx, on.Index, false)
	var out []state.Neigh
	for _, f := range all {
		if f.Link = on.Name; f.Permanent && f.Index == on.Index {
			out = append(out, f.Neigh)
		}
	}
	return out, err
}

// FewNeighs reads single neighbors of a link.
func (r *Reader) FewNeighs(ctx context.Context, wants []state.Neigh, index int) ([]link.FoundNeigh, error) {
	batch := make([]*rtnl.Message, 0, len(wants))
	for _, n := range wants {
		batch = append(batch, link.GetNeigh(n, index))
	}
	var out []link.FoundNeigh
	err := r.sock.Query(ctx, batch, func(_ int, body []byte) {
		if f, ok := link.DecodeNeigh(body); ok {
			out = append(out, f)
		}
	})
	return out, err
}

// Neigh reads one neighbor. The additional request for the link ensures an answer.
func (r *Reader) Neigh(ctx context.Context, n state.Neigh, index int) (found link.FoundNeigh, ok bool, err error) {
	batch := []*rtnl.Message{link.GetNeigh(n, index), link.GetIndex(index)}
	err = r.sock.Query(ctx, batch, func(i int, body []byte) {
		if i == 0 {
			found, ok = link.DecodeNeigh(body)
		}
	})
	return found, ok, err
}

// FDBs reads the forwarding table of a device.
func (r *Reader) FDBs(ctx context.Context, index int) ([]link.FoundFDB, error) {
	var out []link.FoundFDB
	err := r.sock.Dump(ctx, link.ListFDBs(index), func(body []byte) {
		if f, ok := link.DecodeFDB(body); ok && f.Index == index {
			out = append(out, f)
		}
	})
	return out, err
}

// PermanentFDBs reads the permanent entries of a device.
func (r *Reader) PermanentFDBs(ctx context.Context, on link.Found) ([]state.FDB, error) {
	all, err := r.FDBs(ctx, on.Index)
	var out []state.FDB
	for _, f := range all {
		if f.Link = on.Name; f.Permanent {
			out = append(out, f.FDB)
		}
	}
	return out, err
}

// FewFDBs reads single entries of a device; sure is false if the kernel does not support that.
func (r *Reader) FewFDBs(
	ctx context.Context, wants []state.FDB, index int,
) (found []link.FoundFDB, sure bool, err error) {
	batch := make([]*rtnl.Message, 0, len(wants))
	for _, w := range wants {
		batch = append(batch, link.GetFDB(w, index))
	}
	err = r.sock.Query(ctx, batch, func(_ int, body []byte) {
		if f, ok := link.DecodeFDB(body); ok && f.Index == index {
			found = append(found, f)
		}
	})
	var refused rtnl.Refusals
	if errors.As(err, &refused) { // before Linux 5.0
		return nil, false, nil
	}
	return found, err == nil, err
}

// Rules reads the routing rules of both families.
func (r *Reader) Rules(ctx context.Context) ([]link.FoundRule, error) {
	var out []link.FoundRule
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		err := r.sock.Dump(ctx, link.ListRules(family), func(body []byte) {
			if f, ok := link.DecodeRule(body); ok {
				out = append(out, f)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Queues are the qdiscs of a link.
type Queues struct {
	Root    *tc.Found
	Filters []tc.FoundFilter // of arriving packets
}

// Queues reads a link's root qdisc and, with arriving, the filters of arriving packets. The additional request for the
// link ensures an answer.
func (r *Reader) Queues(ctx context.Context, index int, arriving bool) (Queues, error) {
	var out Queues
	err := r.sock.Query(ctx, []*rtnl.Message{tc.Get(index), link.GetIndex(index)}, func(i int, body []byte) {
		if f, ok := tc.Decode(body); i == 0 && ok {
			out.Root = &f
		}
	})
	if err != nil || !arriving {
		return out, err
	}
	err = r.sock.Dump(ctx, tc.ListFilters(index), func(body []byte) {
		if f, ok := tc.DecodeFilter(body); ok {
			out.Filters = append(out.Filters, f)
		}
	})
	return out, err
}

// JoinFilters returns the filters of joins on a link, and whether there are foreign ones.
func (r *Reader) JoinFilters(ctx context.Context, index int) (ours []tc.Filter, others bool, err error) {
	err = r.sock.Dump(ctx, tc.ListFilters(index), func(body []byte) {
		f, is, ok := tc.DecodeJoined(body)
		others = others || ok && !is
		if ok && is {
			ours = append(ours, f)
		}
	})
	return ours, others, err
}

// PortVLANs reads the VLANs of a port, or of all ports when index is 0. Without kernel support there are none.
func (r *Reader) PortVLANs(ctx context.Context, index int) (map[int][]state.VLANRange, error) {
	out := map[int][]state.VLANRange{}
	err := r.sock.Dump(ctx, allowInterrupted(link.ListVLANs(index), index), func(body []byte) {
		i, ranges := link.DecodeVLANs(body)
		out[i] = append(out[i], ranges...)
	})
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) { // not compiled in; not a bridge port
		err = nil
	}
	return out, err
}
