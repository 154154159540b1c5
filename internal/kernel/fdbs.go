// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"cmp"
	"context"
	"slices"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// readFDBs looks at the forwarding tables that are spoken of.
func (v *view) readFDBs(ctx context.Context) error {
	v.fdbs = map[string]map[state.MAC]link.FoundFDB{}
	wants := map[string][]state.FDB{}
	for _, e := range v.want.FDBs {
		if _, ok := v.old(e.Link); ok {
			wants[e.Link] = append(wants[e.Link], e)
		}
	}
	for name, entries := range wants {
		index := v.links[name].Index
		var found []link.FoundFDB
		var sure bool
		var err error
		if len(entries) <= few {
			found, sure, err = v.askFDBs(ctx, entries, index)
		}
		if err == nil && !sure {
			found, err = v.conn.fdbs(ctx, index)
		}
		if err != nil {
			return err
		}
		v.fdbs[name] = make(map[state.MAC]link.FoundFDB, len(found))
		for _, have := range found {
			v.fdbs[name][have.MAC] = have
		}
	}
	return nil
}

func (c *Conn) fdbs(ctx context.Context, index int) ([]link.FoundFDB, error) {
	var out []link.FoundFDB
	err := c.rtnl.Dump(ctx, link.ListFDBs(index), func(body []byte) {
		if f, ok := link.DecodeFDB(body); ok && f.Index == index {
			out = append(out, f)
		}
	})
	return out, err
}

func (v *view) hasFDB(want state.FDB) (found state.FDB, there, equal bool) {
	have, ok := v.fdbs[want.Link][want.MAC]
	have.Link = want.Link
	return have.FDB, ok, ok && have.Permanent && have.Dst == want.Dst
}

func (v *view) fdbBatch() []*rtnl.Message {
	var batch []*rtnl.Message
	for _, want := range v.want.FDBs {
		if _, _, equal := v.hasFDB(want); !equal {
			batch = append(batch, link.AddFDB(want, v.links[want.Link].Index))
		}
	}
	return batch
}

func (v *view) diffFDBs(out *list) {
	for _, want := range v.want.FDBs {
		if found, there, equal := v.hasFDB(want); !equal {
			have := ""
			if there {
				have = found.String()
			}
			out.add(v.name, want, have)
		}
	}
}

func (v *view) readFoundFDBs(out *state.Space) {
	for _, want := range v.want.FDBs {
		if found, there, _ := v.hasFDB(want); there {
			out.FDBs = append(out.FDBs, found)
		}
	}
}

// readAllFDBs reads the permanent entries of all VXLAN devices.
func (c *Conn) readAllFDBs(ctx context.Context, out *state.Space, links map[int]link.Found) error {
	for index, l := range links {
		if l.Kind != state.Vxlan {
			continue
		}
		found, err := c.fdbs(ctx, index)
		if err != nil {
			return err
		}
		for _, f := range found {
			if f.Link = l.Name; f.Permanent {
				out.FDBs = append(out.FDBs, f.FDB)
			}
		}
	}
	slices.SortFunc(out.FDBs, func(a, b state.FDB) int { return cmp.Compare(a.String(), b.String()) })
	return nil
}
