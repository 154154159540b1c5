// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weft-net/weft/internal/kernel/join"
	"github.com/weft-net/weft/internal/state"
)

// joins are the joins of a tap and a link that a space names.
type joins struct {
	space     state.SpaceName
	want      []state.Join
	wantLinks []state.Link
	links     *links
	in        join.Namespace
	found     map[string]state.JoinHow // by tap: the way in which it is done; missing where it is not
}

// read looks how the joins are done that the space names.
func (j *joins) read(ctx context.Context) error {
	j.found = map[string]state.JoinHow{}
	for _, want := range j.want {
		tap, there := j.links.old(want.Tap)
		link, too := j.links.old(want.Link)
		if !there || !too {
			continue
		}
		how, err := join.Way{In: j.in, Join: want, Tap: tap, Link: link}.Found(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", want, err)
		}
		if how != "" {
			j.found[want.Tap] = how
		}
	}
	return nil
}

// has tells what is there of a join, in words, and whether it is as wanted. Where the way is open, any will do.
func (j *joins) has(want state.Join) (have string, equal bool) {
	how, ok := j.found[want.Tap]
	if !ok {
		return "", false
	}
	found := want
	found.How = how
	return found.String(), want.How == "" || want.How == how
}

// make does the joins that are missing, before their links come up. Where the way is open, the first one that the
// kernel can is taken.
func (j *joins) make(ctx context.Context) error {
	for _, want := range j.want {
		if _, equal := j.has(want); equal {
			continue
		}
		tap, there := j.links.get(want.Tap)
		link, too := j.links.get(want.Link)
		if !there || !too {
			return fmt.Errorf("%s: %w", want, ErrMissing)
		}
		link.PeerAway = link.PeerAway || j.endsElsewhere(want.Link)
		if err := (join.Way{In: j.in, Join: want, Tap: tap, Link: link}).Make(ctx); err != nil {
			return fmt.Errorf("%s: %w", want, err)
		}
	}
	return nil
}

// endsElsewhere tells whether a link that this Apply made is an end of a pair between the namespaces.
func (j *joins) endsElsewhere(name string) bool {
	return j.links.made[name] && slices.ContainsFunc(j.wantLinks, func(l state.Link) bool {
		return l.Name == name && l.Peer != nil && l.Peer.Space != j.space
	})
}

// end undoes those of which ours says it.
func (j *joins) end(ctx context.Context, ours func(state.Join) bool) error {
	var errs []error
	for _, want := range j.want {
		if !ours(want) {
			continue
		}
		w := join.Way{In: j.in, Join: want, Tap: j.links.found[want.Tap], Link: j.links.found[want.Link]}
		errs = append(errs, w.EndAll(ctx))
	}
	return errors.Join(errs...)
}

func (j *joins) diff(out *diffs) {
	for _, want := range j.want {
		if have, equal := j.has(want); !equal {
			out.add(want, have)
		}
	}
}

func (j *joins) tell(out *state.Space) {
	for _, want := range j.want {
		if _, equal := j.has(want); equal {
			out.Joins = append(out.Joins, want)
		}
	}
}
