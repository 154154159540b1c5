// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"fmt"
	"slices"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/kernel/tc"
	"github.com/weft-net/weft/internal/state"
)

// queues is what a link has of qdiscs.
type queues struct {
	root    *tc.Found
	filters []tc.FoundFilter // of arriving packets
}

// readQdiscs reads those of links that were there before: what this Apply made has none.
func (v *view) readQdiscs(ctx context.Context) error {
	v.queues = map[string]queues{}
	for _, q := range v.want.Qdiscs {
		f, ok := v.old(q.Link)
		if _, done := v.queues[q.Link]; done || !ok {
			continue
		}
		arriving := func(o state.Qdisc) bool { return o.Link == q.Link && o.Kind == state.Ingress }
		found, err := v.conn.queues(ctx, f.Index, slices.ContainsFunc(v.want.Qdiscs, arriving))
		if err != nil {
			return err
		}
		v.queues[q.Link] = found
	}
	return nil
}

// queues asks for a link's root qdisc and, if wanted, the filters of what arrives. The question about the link makes sure of an
// answer.
func (c *Conn) queues(ctx context.Context, index int, arriving bool) (queues, error) {
	var out queues
	err := c.rtnl.Ask(ctx, []*rtnl.Message{tc.Get(index), link.GetIndex(index)}, func(i int, body []byte) {
		if f, ok := tc.Decode(body); i == 0 && ok {
			out.root = &f
		}
	})
	if err != nil || !arriving {
		return out, err
	}
	err = c.rtnl.Dump(ctx, tc.ListFilters(index), func(body []byte) {
		if f, ok := tc.DecodeFilter(body); ok {
			out.filters = append(out.filters, f)
		}
	})
	return out, err
}

// hasQdisc tells what is there of a qdisc, in words, and whether it is as wanted.
func (v *view) hasQdisc(want state.Qdisc) (have string, equal bool) {
	q := v.queues[want.Link]
	if want.Kind != state.Ingress {
		if q.root == nil || q.root.Handle == 0 {
			return "", false
		}
		found := *q.root
		found.Link = want.Link
		return found.String(), found.Is(want)
	}
	for _, f := range q.filters {
		if f.Ours {
			to := v.links[want.Redirect].Index
			return fmt.Sprintf("qdisc ingress dev %s redirect to link %d", want.Link, f.To), to != 0 && f.To == to
		}
	}
	return "", false
}

// qdiscBatch is the qdiscs that are missing or differ. It goes before the links come up: putting one on a link that is up
// costs the kernel an RCU wait.
func (v *view) qdiscBatch() ([]*rtnl.Message, error) {
	var batch []*rtnl.Message
	for _, want := range v.want.Qdiscs {
		have, equal := v.hasQdisc(want)
		if equal {
			continue
		}
		index, ok := v.links[want.Link]
		to, there := v.links[want.Redirect]
		switch root := v.queues[want.Link].root; {
		case !ok:
			return nil, fmt.Errorf("%s: link %s %w", want, want.Link, ErrMissing)
		case want.Redirect != "" && !there:
			return nil, fmt.Errorf("%s: link %s %w", want, want.Redirect, ErrMissing)
		case want.Kind != state.Ingress && root != nil && root.Foreign():
			return nil, fmt.Errorf("%s: a root qdisc of kind %s and handle %x: %w", want, root.Kind, root.Handle>>16, ErrForeign)
		case have != "" && (root == nil || root.Kind != want.Kind): // one of another kind is not changed, and a filter never is
			batch = append(batch, tc.Delete(want, index.Index))
		}
		batch = append(batch, tc.Set(want, index.Index, to.Index)...)
	}
	return batch, nil
}

// qdiscBatch takes away those on links that stay, if they are not another one's by now. The qdisc of arriving packets goes when
// nobody has a filter in it: joins, which have some there, end before.
func (r *removal) qdiscBatch(ctx context.Context, v *view) ([]*rtnl.Message, error) {
	if err := r.parts(ctx, v); err != nil {
		return nil, err
	}
	var batch []*rtnl.Message
	for _, q := range v.want.Qdiscs {
		have, ok := v.links[q.Link]
		if !ok || r.dying[v.name][q.Link] || r.anothers(v, q.Link) {
			continue
		}
		batch = append(batch, tc.Delete(q, have.Index))
		if q.Kind != state.Ingress {
			continue
		}
		found, err := v.conn.queues(ctx, have.Index, true)
		if err != nil {
			return nil, in(v.name, err)
		}
		if !slices.ContainsFunc(found.filters, func(f tc.FoundFilter) bool { return !f.Ours }) {
			batch = append(batch, tc.DeleteIngress(q, have.Index))
		}
	}
	return batch, nil
}
