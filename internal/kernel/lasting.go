// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/state"
)

// answerNeighs tells the neighbors of a link that somebody has set.
func (c *Conn) answerNeighs(ctx context.Context, f link.Found) (state.Answer, error) {
	if f.Index == 0 || dead(f) {
		return state.Answer{}, nil
	}
	neighs, err := c.reader.PermanentNeighs(ctx, f)
	return state.Answer{Found: err == nil, Neighs: neighs}, err
}
