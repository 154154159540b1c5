// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"slices"

	"github.com/weft-net/weft/internal/kernel/observe"
	"github.com/weft-net/weft/internal/state"
)

// Observe answers a planner's queries. In a space without a namespace nothing is found.
func (s Spaces) Observe(ctx context.Context, queries []state.Query) (state.Answers, error) {
	return observe.Spaces{Host: s.Host.observed(), Pod: s.Pod.observed()}.Answer(ctx, queries)
}

func (c *Conn) observed() *observe.Namespace {
	if c == nil {
		return nil
	}
	return &observe.Namespace{Reader: c.reader, Socket: c.rtnl, Settings: c.conf, Filters: c.Filters}
}

// UnusedIFBs returns the ifb links of chosen names to which no link of the namespace redirects arriving packets.
func (c *Conn) UnusedIFBs(ctx context.Context, choose func(name string) bool) ([]string, error) {
	links, err := c.reader.Links(ctx, 0)
	if err != nil {
		return nil, err
	}
	fed, any := map[int]bool{}, false
	for _, l := range links {
		any = any || l.Kind == state.Ifb && choose(l.Name)
	}
	if !any {
		return nil, nil
	}
	for _, l := range links {
		q, err := c.reader.Queues(ctx, l.Index, true)
		if err != nil {
			return nil, err
		}
		for _, f := range q.Filters {
			fed[f.To] = true
		}
	}
	var out []string
	for _, l := range links {
		if l.Kind == state.Ifb && choose(l.Name) && !fed[l.Index] {
			out = append(out, l.Name)
		}
	}
	slices.Sort(out)
	return out, nil
}
