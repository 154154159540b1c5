// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/reader"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// few is how many entries of a device's table are read one by one; for more, the whole table is read.
const few = 16

// neighs are the neighbors and proxies that a space names.
type neighs struct {
	want   []state.Neigh
	links  *links
	reader *reader.Reader
	found  map[neighPlace]link.FoundNeigh
}

// neighPlace identifies a neighbor entry.
type neighPlace struct {
	index int
	ip    netip.Addr
	proxy bool
}

// read reads the entries of each device together.
func (n *neighs) read(ctx context.Context) error {
	n.found = map[neighPlace]link.FoundNeigh{}
	wants := map[string][]state.Neigh{}
	var order []string
	for _, want := range n.want {
		if _, ok := n.links.old(want.Link); !ok {
			continue
		}
		if wants[want.Link] == nil {
			order = append(order, want.Link)
		}
		wants[want.Link] = append(wants[want.Link], want)
	}
	for _, name := range order {
		found, err := n.of(ctx, wants[name], n.links.index(name))
		if err != nil {
			return err
		}
		for _, f := range found {
			n.found[neighPlace{f.Index, f.IP, f.Proxy}] = f
		}
	}
	return nil
}

// of reads at least the wanted entries of a device.
func (n *neighs) of(ctx context.Context, wants []state.Neigh, index int) ([]link.FoundNeigh, error) {
	if len(wants) <= few {
		return n.reader.FewNeighs(ctx, wants, index)
	}
	var all []link.FoundNeigh
	for _, proxy := range []bool{false, true} {
		if !slices.ContainsFunc(wants, func(w state.Neigh) bool { return w.Proxy == proxy }) {
			continue
		}
		found, err := n.reader.Neighs(ctx, index, proxy)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// forget drops the entries that were found on a link: the kernel deletes them too, when the link's MAC changes.
func (n *neighs) forget(index int) {
	maps.DeleteFunc(n.found, func(p neighPlace, _ link.FoundNeigh) bool { return p.index == index })
}

func (n *neighs) has(want state.Neigh) (found *link.FoundNeigh, equal bool) {
	have, ok := n.found[neighPlace{n.links.index(want.Link), want.IP, want.Proxy}]
	if !ok {
		return nil, false
	}
	return &have, want.Proxy || have.Permanent && have.MAC == want.MAC
}

// missing returns the requests for entries that are missing or differ.
func (n *neighs) missing() iter.Seq[*rtnl.Message] {
	return func(yield func(*rtnl.Message) bool) {
		for _, want := range n.want {
			if _, equal := n.has(want); !equal && !yield(link.AddNeigh(want, n.links.index(want.Link))) {
				return
			}
		}
	}
}

// removal deletes the entries on links that stay.
func (n *neighs) removal(stays func(link string) (index int, ok bool)) []*rtnl.Message {
	var batch []*rtnl.Message
	for _, want := range n.want {
		if index, ok := stays(want.Link); ok && !want.Shared {
			batch = append(batch, link.DelNeigh(want, index))
		}
	}
	return batch
}

func (n *neighs) diff(out *diffs) {
	for _, want := range n.want {
		if found, equal := n.has(want); !equal {
			have := ""
			if found != nil {
				found.Link = want.Link
				have = found.String()
			}
			out.add(want, have)
		}
	}
}

func (n *neighs) report(out *state.Space) {
	for _, want := range n.want {
		if found, equal := n.has(want); equal {
			out.Neighs = append(out.Neighs, want)
		} else if found != nil {
			found.Link = want.Link
			out.Neighs = append(out.Neighs, found.Neigh)
		}
	}
}
