// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/state"
)

// answerNeighs tells the neighbours of a link that somebody has set.
func (c *Conn) answerNeighs(ctx context.Context, f link.Found) (state.Answer, error) {
	if f.Index == 0 || dead(f) {
		return state.Answer{}, nil
	}
	neighs, err := c.lastingNeighs(ctx, f.Index, f.Name)
	return state.Answer{Found: err == nil, Neighs: neighs}, err
}

// lastingNeighs are the neighbours of a link that the kernel has not learned.
func (c *Conn) lastingNeighs(ctx context.Context, index int, name string) ([]state.Neigh, error) {
	var out []state.Neigh
	err := c.rtnl.Dump(ctx, whole(link.ListNeighs(index, false), 0), func(body []byte) {
		f, ok := link.DecodeNeigh(body)
		if f.Link = name; ok && f.Permanent && f.Index == index {
			out = append(out, f.Neigh)
		}
	})
	return out, err
}
