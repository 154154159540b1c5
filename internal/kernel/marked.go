// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/state"
)

// ReadMarked tells what of the namespace bears a mark: the routes of that protocol in the main table, the links of that
// alias, and the permanent neighbours and forwarding entries on those. It is unsorted, and cheap where others have much.
func (c *Conn) ReadMarked(ctx context.Context, protocol uint8, alias string) (state.Space, error) {
	var out state.Space
	links, err := c.links(ctx, 0)
	if err != nil {
		return out, err
	}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		err := c.rtnl.Dump(ctx, whole(link.ListRoutesOf(family, unix.RT_TABLE_MAIN, protocol), 0), func(body []byte) {
			f, ok := link.DecodeRoute(body)
			if ok && f.Protocol == protocol && f.Table == unix.RT_TABLE_MAIN {
				f.Link = links[f.Index].Name
				out.Routes = append(out.Routes, f.Route)
			}
		})
		if err != nil {
			return out, err
		}
	}
	for index, l := range links {
		if l.Alias != alias {
			continue
		}
		out.Links = append(out.Links, l.Link)
		err := c.rtnl.Dump(ctx, whole(link.ListNeighs(index, false), 0), func(body []byte) {
			f, ok := link.DecodeNeigh(body)
			if f.Link = l.Name; ok && f.Permanent && f.Index == index {
				out.Neighs = append(out.Neighs, f.Neigh)
			}
		})
		if err != nil {
			return out, err
		}
		if l.Kind != state.Vxlan {
			continue
		}
		found, err := c.fdbs(ctx, index)
		if err != nil {
			return out, err
		}
		for _, f := range found {
			if f.Link = l.Name; f.Permanent {
				out.FDBs = append(out.FDBs, f.FDB)
			}
		}
	}
	return out, nil
}
