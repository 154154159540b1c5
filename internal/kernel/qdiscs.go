// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"fmt"
	"slices"

	"github.com/weft-net/weft/internal/kernel/reader"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/kernel/tc"
	"github.com/weft-net/weft/internal/state"
)

// qdiscs are the qdiscs that a space names: a root qdisc for sent packets, a filter for arriving ones.
type qdiscs struct {
	want   []state.Qdisc
	links  *links
	reader *reader.Reader
	found  map[string]reader.Queues // by link
}

// read reads the qdiscs of links that existed before: links made by this Apply have none.
func (q *qdiscs) read(ctx context.Context) error {
	q.found = map[string]reader.Queues{}
	for _, want := range q.want {
		f, ok := q.links.old(want.Link)
		if _, done := q.found[want.Link]; done || !ok {
			continue
		}
		arriving := func(o state.Qdisc) bool { return o.Link == want.Link && o.Kind == state.Ingress }
		found, err := q.reader.Queues(ctx, f.Index, slices.ContainsFunc(q.want, arriving))
		if err != nil {
			return err
		}
		q.found[want.Link] = found
	}
	return nil
}

// has prints the existing qdisc, and reports whether it is as wanted.
func (q *qdiscs) has(want state.Qdisc) (have string, equal bool) {
	there := q.found[want.Link]
	if want.Kind != state.Ingress {
		if there.Root == nil || there.Root.Handle == 0 {
			return "", false
		}
		found := *there.Root
		found.Link = want.Link
		return found.String(), found.Is(want)
	}
	for _, f := range there.Filters {
		if f.Ours {
			to := q.links.index(want.Redirect)
			return fmt.Sprintf("qdisc ingress dev %s redirect to link %d", want.Link, f.To), to != 0 && f.To == to
		}
	}
	return "", false
}

// batch returns the requests for qdiscs that are missing or differ. They precede bringing the links up: adding a qdisc
// to a link that is up costs the kernel an RCU wait.
func (q *qdiscs) batch() ([]*rtnl.Message, error) {
	var batch []*rtnl.Message
	for _, want := range q.want {
		have, equal := q.has(want)
		if equal {
			continue
		}
		on, ok := q.links.get(want.Link)
		to, there := q.links.get(want.Redirect)
		switch root := q.found[want.Link].Root; {
		case !ok:
			return nil, fmt.Errorf("%s: link %s %w", want, want.Link, ErrMissing)
		case want.Redirect != "" && !there:
			return nil, fmt.Errorf("%s: link %s %w", want, want.Redirect, ErrMissing)
		case want.Kind != state.Ingress && root != nil && root.Foreign():
			return nil, fmt.Errorf("%s: a root qdisc of kind %s and handle %x: %w", want, root.Kind, root.Handle>>16, ErrForeign)
		case have != "" && (root == nil || root.Kind != want.Kind):
			// one of another kind cannot be changed, and neither can a filter
			batch = append(batch, tc.Delete(want, on.Index))
		}
		batch = append(batch, tc.Set(want, on.Index, to.Index)...)
	}
	return batch, nil
}

// removal deletes the qdiscs of links that stays selects. The ingress qdisc is deleted when it has no more filters of
// other owners: joins, which have some there, end before.
func (q *qdiscs) removal(ctx context.Context, stays func(link string) bool) ([]*rtnl.Message, error) {
	var batch []*rtnl.Message
	for _, want := range q.want {
		have, ok := q.links.get(want.Link)
		if !ok || !stays(want.Link) {
			continue
		}
		batch = append(batch, tc.Delete(want, have.Index))
		if want.Kind != state.Ingress {
			continue
		}
		found, err := q.reader.Queues(ctx, have.Index, true)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(found.Filters, func(f tc.FoundFilter) bool { return !f.Ours }) {
			batch = append(batch, tc.DeleteIngress(want, have.Index))
		}
	}
	return batch, nil
}

func (q *qdiscs) diff(out *diffs) {
	for _, want := range q.want {
		if have, equal := q.has(want); !equal {
			out.add(want, have)
		}
	}
}

func (q *qdiscs) report(out *state.Space) {
	for _, want := range q.want {
		if _, equal := q.has(want); equal {
			out.Qdiscs = append(out.Qdiscs, want)
		} else if root := q.found[want.Link].Root; want.Kind != state.Ingress && root != nil && root.Handle != 0 {
			root.Link = want.Link
			out.Qdiscs = append(out.Qdiscs, root.Qdisc)
		}
	}
}
