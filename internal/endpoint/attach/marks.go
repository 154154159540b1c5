// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"strings"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// sameMark tells whether a mark that was found is the wanted one. The comment of an nft element holds less than an
// ifalias, so it may be the beginning of it.
func sameMark(found, want string) bool {
	const shortest = 100 // nobody cuts a mark below this
	return found == want || len(found) >= shortest && strings.HasPrefix(want, found)
}

// removeMarked removes everything in the node's namespace whose mark is chosen: links, if they are wanted, by their alias,
// and elements of weft's nft tables, by their comment. Many links are deleted together.
func (u *undoer) removeMarked(ctx context.Context, links bool, choose func(mark string) bool) error {
	have, err := u.host.ReadAll(ctx)
	if err != nil {
		return err
	}
	marked := func(mark string) bool {
		return strings.HasPrefix(mark, markPrefix) && mark != plugin.SharedMark && choose(mark)
	}
	var f state.Fragment
	for _, l := range have.Links {
		if links && marked(l.Alias) && l.Kind != "" {
			f.Host.Links = append(f.Host.Links, state.Link{Name: l.Name, Kind: l.Kind})
		}
	}
	for _, t := range have.Tables {
		part := state.Table{Family: t.Family, Name: t.Name, Shared: true}
		for _, s := range t.Sets {
			if chosen := chosenElements(s, marked); len(chosen.Elements) > 0 {
				part.Sets = append(part.Sets, chosen)
			}
		}
		if len(part.Sets) > 0 {
			f.Host.Tables = append(f.Host.Tables, part)
		}
	}
	if f.Host.Empty() {
		return nil
	}
	f.Owner = "marked"
	spaces := kernel.Spaces{Host: u.host}
	if len(f.Host.Links) < 2 {
		return spaces.Remove(ctx, f)
	}
	if err := spaces.Release(ctx, f); err != nil {
		return err
	}
	return u.reap(ctx)
}

const markPrefix = "weft:"

func chosenElements(s state.Set, marked func(string) bool) state.Set {
	out := state.Set{Name: s.Name, Key: s.Key, Data: s.Data, Interval: s.Interval}
	for _, e := range s.Elements {
		if marked(e.Comment) {
			out.Elements = append(out.Elements, e)
		}
	}
	return out
}
