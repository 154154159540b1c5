// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"slices"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/rtnl"
)

// Barred is the link group of links that are down because nobody may speak over them: "wefb" in ASCII.
const Barred = 0x77656662

// Bar has links be down, and those up again that were barred before and are not named. What is barred is told by the
// links' group, so it outlives this process; the dead stay dead, and a missing link is none.
func (c *Conn) Bar(ctx context.Context, names []string) (down, up []string, err error) {
	links, err := c.reader.Links(ctx, 0)
	if err != nil {
		return nil, nil, err
	}
	yes, no, barred, none := true, false, uint32(Barred), uint32(0)
	var batch []*rtnl.Message
	for _, l := range links {
		wanted := slices.Contains(names, l.Name)
		switch {
		case l.Dead():
		case wanted && (l.Group != Barred || l.Up != nil && *l.Up):
			batch = append(batch, link.Set(l.Index, l.Name, link.Change{Up: &no, Group: &barred}).Forgiving(enodev))
			down = append(down, l.Name)
		case !wanted && l.Group == Barred:
			batch = append(batch, link.Set(l.Index, l.Name, link.Change{Up: &yes, Group: &none}).Forgiving(enodev))
			up = append(up, l.Name)
		}
	}
	if len(batch) == 0 {
		return nil, nil, nil
	}
	slices.Sort(down)
	slices.Sort(up)
	return down, up, c.rtnl.Send(ctx, batch)
}
