// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"fmt"

	"github.com/weft-net/weft/internal/kernel/effect"
	"github.com/weft-net/weft/internal/state"
)

// effects performs the effects of a trigger. Consecutive announcements in one space share a socket.
func (s Spaces) effects(ctx context.Context, effects []state.Effect, when state.Trigger) error {
	due := make([]state.Effect, 0, len(effects))
	for _, e := range effects {
		if e.When == when && s.conn(e.Space) != nil {
			due = append(due, e)
		}
	}
	for len(due) > 0 {
		n := 1
		for n < len(due) && due[n].Kind == state.Announce && due[0].Kind == state.Announce && due[n].Space == due[0].Space {
			n++
		}
		c := s.conn(due[0].Space)
		var err error
		if due[0].Kind == state.Announce {
			err = effect.SendGratuitousARP(c.ns, due[:n])
		} else {
			err = effect.Do(ctx, c.ns, &c.tracked, due[0])
		}
		if err != nil {
			return fmt.Errorf("%s: %w", due[0], err)
		}
		due = due[n:]
	}
	return nil
}
