// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"fmt"

	"github.com/weft-net/weft/internal/kernel/effect"
	"github.com/weft-net/weft/internal/state"
)

// effects performs those of a trigger.
func (s Spaces) effects(ctx context.Context, effects []state.Effect, when state.Trigger) error {
	for _, e := range effects {
		c := s.conn(e.Space)
		if c == nil || e.When != when {
			continue
		}
		if err := effect.Do(ctx, c.ns, &c.tracked, e); err != nil {
			return fmt.Errorf("%s: %w", e, err)
		}
	}
	return nil
}
