// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/weft-net/weft/internal/cli/agents"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/flow"
)

// Explain explains the connection of a flow, as weft explain does, in lines of text.
type Explain func(ctx context.Context, c agents.Cluster, r flow.Record) ([]string, error)

// maxExplained is how many connections a command explains: agents are asked for each.
const maxExplained = 50

// explained prints after the first flow between two ends what weft explain says about it.
type explained struct {
	sink
	w, errs io.Writer
	explain func(flow.Record) ([]string, error)
	seen    map[talkers]bool
	full    bool
}

func (x *explained) record(r flow.Record) error {
	if err := x.sink.record(r); err != nil {
		return err
	}
	k := talkers{r.From.Text(true), r.To.Text(true), r.Protocol, r.To.Port, r.Verdict}
	if r.From.Port != 0 { // the next connection has another one
		k.From = r.From.Addr.String()
	}
	if x.seen[k] || r.Kind == flow.End || r.From.Kind == flow.OtherEnd {
		return nil
	}
	if len(x.seen) >= maxExplained {
		if !x.full {
			ui.Warn(x.errs, errors.New("only the first "+strconv.Itoa(maxExplained)+" connections are explained; use filters"))
		}
		x.full = true
		return nil
	}
	x.seen[k] = true
	lines, err := x.explain(r)
	if err != nil {
		lines = []string{"not explained: " + err.Error()}
	}
	for _, l := range lines {
		if _, err := fmt.Fprintln(x.w, "  "+l); err != nil {
			return err
		}
	}
	return nil
}
