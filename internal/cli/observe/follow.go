// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"io"

	"github.com/weft-net/weft/internal/cli/agents"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/flow"
)

// Follow calls emit with the flows of a cluster, of pods, VMs and Services, in the order of their times until ctx ends:
// first those that are tracked. What is missing is written to warnings, a line each.
func Follow(ctx context.Context, c agents.Cluster, warnings io.Writer, emit func(flow.Record)) error {
	m := newMerger(warnings)
	m.known = func(*flow.Directory) error { return nil }
	m.emit = func(r flow.Record) error {
		if r.HasEndpoint() {
			emit(r)
		}
		return nil
	}
	if err := addNames(ctx, c, m.directory); err != nil {
		ui.Warn(warnings, err)
	}
	return m.run(ctx, c, question{follow: true, tracked: true})
}
