// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/state"
)

// answerOtherEnd finds a veth's other end in the other namespace. An index alone proves little: the two must refer to
// each other.
func (s Spaces) answerOtherEnd(ctx context.Context, q state.Query, links map[string]link.Found) (state.Answer, error) {
	other := s.Host
	if q.Space == state.Host {
		other = s.Pod
	}
	f, ok := links[q.OtherEnd]
	if ok && other != nil && !f.Dead() && f.Kind == state.Tap && f.Alias != "" {
		return other.tapMarked(ctx, f.Alias)
	}
	if !ok || f.Dead() || f.Kind != state.Veth || f.PeerIndex == 0 || other == nil {
		return state.Answer{}, nil
	}
	end, ok, err := other.Reader.LinkByIndex(ctx, f.PeerIndex)
	if err != nil || !ok || end.Kind != state.Veth || end.PeerIndex != f.Index {
		return state.Answer{}, err
	}
	return other.describe(ctx, end)
}

// tapMarked finds the tap that has a mark: a tap in a pod may correspond to one on the node.
func (c *Namespace) tapMarked(ctx context.Context, mark string) (state.Answer, error) {
	links, err := c.Reader.Links(ctx, 0)
	if err != nil {
		return state.Answer{}, err
	}
	for _, l := range links {
		if l.Kind == state.Tap && l.Alias == mark && !l.Dead() {
			return c.describe(ctx, l)
		}
	}
	return state.Answer{}, nil
}
