// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"iter"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/reader"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// fdbs are the forwarding entries that a space names.
type fdbs struct {
	want   []state.FDB
	links  *links
	reader *reader.Reader
	found  map[string]map[state.MAC]link.FoundFDB // by link
}

// read reads the forwarding tables that the space refers to.
func (t *fdbs) read(ctx context.Context) error {
	t.found = map[string]map[state.MAC]link.FoundFDB{}
	wants := map[string][]state.FDB{}
	for _, e := range t.want {
		if _, ok := t.links.old(e.Link); ok {
			wants[e.Link] = append(wants[e.Link], e)
		}
	}
	for name, entries := range wants {
		index := t.links.index(name)
		var found []link.FoundFDB
		var sure bool
		var err error
		if len(entries) <= few {
			found, sure, err = t.reader.FewFDBs(ctx, entries, index)
		}
		if err == nil && !sure {
			found, err = t.reader.FDBs(ctx, index)
		}
		if err != nil {
			return err
		}
		t.found[name] = make(map[state.MAC]link.FoundFDB, len(found))
		for _, have := range found {
			t.found[name][have.MAC] = have
		}
	}
	return nil
}

func (t *fdbs) has(want state.FDB) (found state.FDB, there, equal bool) {
	have, ok := t.found[want.Link][want.MAC]
	have.Link = want.Link
	return have.FDB, ok, ok && have.Permanent && have.Dst == want.Dst
}

// missing returns the requests for entries that are missing or differ.
func (t *fdbs) missing() iter.Seq[*rtnl.Message] {
	return func(yield func(*rtnl.Message) bool) {
		for _, want := range t.want {
			if _, _, equal := t.has(want); !equal && !yield(link.AddFDB(want, t.links.index(want.Link))) {
				return
			}
		}
	}
}

// removal deletes the entries on links that stay.
func (t *fdbs) removal(stays func(link string) (index int, ok bool)) []*rtnl.Message {
	var batch []*rtnl.Message
	for _, want := range t.want {
		if index, ok := stays(want.Link); ok {
			batch = append(batch, link.DelFDB(want, index))
		}
	}
	return batch
}

func (t *fdbs) diff(out *diffs) {
	for _, want := range t.want {
		if found, there, equal := t.has(want); !equal {
			have := ""
			if there {
				have = found.String()
			}
			out.add(want, have)
		}
	}
}

func (t *fdbs) report(out *state.Space) {
	for _, want := range t.want {
		if found, there, _ := t.has(want); there {
			out.FDBs = append(out.FDBs, found)
		}
	}
}
