// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"slices"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/reader"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// rules are the routing rules that a space names, and all existing ones.
type rules struct {
	want   []state.Rule
	reader *reader.Reader
	found  []link.FoundRule
}

func (r *rules) read(ctx context.Context) error {
	if len(r.want) == 0 {
		return nil
	}
	var err error
	r.found, err = r.reader.Rules(ctx)
	return err
}

func (r *rules) has(want state.Rule) bool {
	n := link.NormalRule(want)
	return slices.ContainsFunc(r.found, func(have link.FoundRule) bool { return have.Rule == n })
}

func (r *rules) batch() []*rtnl.Message {
	var batch []*rtnl.Message
	for _, want := range r.want {
		if !r.has(want) {
			batch = append(batch, link.AddRule(want))
		}
	}
	return batch
}

// removal deletes the rules that are not shared.
func (r *rules) removal() []*rtnl.Message {
	var batch []*rtnl.Message
	for _, want := range r.want {
		if !want.Shared {
			batch = append(batch, link.DelRule(want))
		}
	}
	return batch
}

func (r *rules) diff(out *diffs) {
	for _, want := range r.want {
		if !r.has(want) {
			out.add(want, "")
		}
	}
}

func (r *rules) report(out *state.Space) {
	for _, want := range r.want {
		if r.has(want) {
			out.Rules = append(out.Rules, want)
		}
	}
}
