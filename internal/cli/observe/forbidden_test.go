// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/node/adminapi"
)

// A user who may not execute in the agents' pods gets one error that says so, also with --follow: asking again and again
// would not help.
func TestForbidden(t *testing.T) {
	for _, follow := range []bool{false, true} {
		var errs strings.Builder
		m := newMerger(&errs)
		asked := 0
		forbidden := func(context.Context, adminapi.Request, func([]byte) error) error {
			asked++
			return fmt.Errorf("exec in pod weft/x: %w", store.ErrForbidden)
		}
		to := make(chan message, 10)
		for _, node := range []string{"node1", "node2"} {
			read(t.Context(), node, forbidden, question{follow: follow}, to)
		}
		if asked != 2 {
			t.Errorf("follow %t: asked %d times", follow, asked)
		}
		for len(to) > 0 {
			msg := <-to
			if !msg.over {
				t.Errorf("follow %t: it goes on after %v", follow, msg.err)
			}
			m.take(msg)
		}
		if err := m.unanswered(); !errors.Is(err, store.ErrForbidden) || strings.Count(err.Error(), "exec in pod") != 1 || errs.String() != "" {
			t.Errorf("follow %t: %v, stderr %q", follow, err, errs.String())
		}
	}
}
