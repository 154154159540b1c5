// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"

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
	if !ok || dead(f) || f.Kind != state.Veth || f.PeerIndex == 0 || other == nil {
		return state.Answer{}, nil
	}
	end, ok, err := other.linkByIndex(ctx, f.PeerIndex)
	if err != nil || !ok || end.Kind != state.Veth || end.PeerIndex != f.Index {
		return state.Answer{}, err
	}
	return other.describe(ctx, end)
}
