// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"slices"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/rtnl"
)

// QuarantineGroup is the link group of links that are down because their traffic is quarantined: "wefb" in ASCII.
const QuarantineGroup = 0x77656662

// Quarantine takes the named links down, and brings those up again that were quarantined before and are no longer named. The
// link group marks a quarantined link, so the quarantine outlives this process. Dead links are skipped, and a missing
// link is no error.
func (c *Conn) Quarantine(ctx context.Context, names []string) (down, up []string, err error) {
	links, err := c.reader.Links(ctx, 0)
	if err != nil {
		return nil, nil, err
	}
	yes, no, quarantined, none := true, false, uint32(QuarantineGroup), uint32(0)
	var batch []*rtnl.Message
	for _, l := range links {
		wanted := slices.Contains(names, l.Name)
		switch {
		case l.Dead():
		case wanted && (l.Group != QuarantineGroup || l.Up != nil && *l.Up):
			batch = append(batch, link.Set(l.Index, l.Name, link.Change{Up: &no, Group: &quarantined}).Forgiving(enodev))
			down = append(down, l.Name)
		case !wanted && l.Group == QuarantineGroup:
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
