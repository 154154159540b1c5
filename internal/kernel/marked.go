// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/state"
)

// Marks identify the objects of one owner.
type Marks struct {
	// Alias is the ifalias of its links. Links are the names of further links.
	Alias string
	Links []string
	// Protocols are the protocol numbers of its routes.
	Protocols []uint8
}

// ReadMarked returns the objects of the namespace that have a mark: links, the permanent neighbors and forwarding
// entries on them, and routes of the main table. It is unsorted, and its cost does not depend on objects of other
// owners.
func (c *Conn) ReadMarked(ctx context.Context, m Marks) (state.Space, error) {
	var out state.Space
	links, err := c.reader.Links(ctx, 0)
	if err != nil {
		return out, err
	}
	for _, protocol := range m.Protocols {
		if err := c.routesOf(ctx, &out, links, protocol); err != nil {
			return out, err
		}
	}
	for _, l := range links {
		if l.Alias != m.Alias && !slices.Contains(m.Links, l.Name) {
			continue
		}
		out.Links = append(out.Links, l.Link)
		neighs, err := c.reader.PermanentNeighs(ctx, l)
		if err != nil {
			return out, err
		}
		out.Neighs = append(out.Neighs, neighs...)
		if l.Kind != state.VXLAN {
			continue
		}
		fdbs, err := c.reader.PermanentFDBs(ctx, l)
		if err != nil {
			return out, err
		}
		out.FDBs = append(out.FDBs, fdbs...)
	}
	return out, nil
}

func (c *Conn) routesOf(ctx context.Context, out *state.Space, links map[int]link.Found, protocol uint8) error {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		found, err := c.reader.RoutesOf(ctx, family, protocol)
		if err != nil {
			return err
		}
		for _, f := range found {
			f.Name(func(index int) string { return links[index].Name })
			out.Routes = append(out.Routes, f.Route)
		}
	}
	return nil
}
