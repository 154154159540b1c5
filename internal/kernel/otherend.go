// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"slices"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/state"
)

// answerOtherEnd looks for a veth's other end in the other namespace. Its index alone says little: the two must know each
// other.
func (s Spaces) answerOtherEnd(ctx context.Context, q state.Query, links map[string]link.Found) (state.Answer, error) {
	other := s.Host
	if q.Space == state.Host {
		other = s.Pod
	}
	f, ok := links[q.OtherEnd]
	if ok && other != nil && !dead(f) && f.Kind == state.Tap && f.Alias != "" {
		return other.tapMarked(ctx, f.Alias)
	}
	if !ok || dead(f) || f.Kind != state.Veth || f.PeerIndex == 0 || other == nil {
		return state.Answer{}, nil
	}
	end, ok, err := other.reader.LinkByIndex(ctx, f.PeerIndex)
	if err != nil || !ok || end.Kind != state.Veth || end.PeerIndex != f.Index {
		return state.Answer{}, err
	}
	return other.describe(ctx, end)
}

// tapMarked looks for the tap that bears a mark: a tap in a pod may stand in for one on the node.
func (c *Conn) tapMarked(ctx context.Context, mark string) (state.Answer, error) {
	links, err := c.reader.Links(ctx, 0)
	if err != nil {
		return state.Answer{}, err
	}
	for _, l := range links {
		if l.Kind == state.Tap && l.Alias == mark && !dead(l) {
			return c.describe(ctx, l)
		}
	}
	return state.Answer{}, nil
}

// Unfed lists the ifb links of chosen names to which no link of the namespace sends what arrives on it.
func (c *Conn) Unfed(ctx context.Context, choose func(name string) bool) ([]string, error) {
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
