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

// joins are the joins of a tap and a link in a space.
type joins struct {
	space     state.SpaceName
	want      []state.Join
	wantLinks []state.Link
	links     *links
	in        join.Namespace
	found     map[string]state.JoinMethod // by tap: the method in use; missing when they are not joined
}

// read determines the method of each join of the space.
func (j *joins) read(ctx context.Context) error {
	j.found = map[string]state.JoinMethod{}
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

// has prints the existing join, and reports whether it is as wanted. Without a wanted method any will do.
func (j *joins) has(want state.Join) (have string, equal bool) {
	how, ok := j.found[want.Tap]
	if !ok {
		return "", false
	}
	found := want
	found.Method = how
	return found.String(), want.Method == "" || want.Method == how
}

// make creates the missing joins, before their links come up. Without a wanted method it uses the first one that the
// kernel supports.
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
		link.PeerAway = link.PeerAway || j.peerInOtherSpace(want.Link)
		if err := (join.Way{In: j.in, Join: want, Tap: tap, Link: link}).Make(ctx); err != nil {
			return fmt.Errorf("%s: %w", want, err)
		}
	}
	return nil
}

// peerInOtherSpace reports whether this Apply made the link as an end of a pair between the two namespaces.
func (j *joins) peerInOtherSpace(name string) bool {
	return j.links.made[name] && slices.ContainsFunc(j.wantLinks, func(l state.Link) bool {
		return l.Name == name && l.Peer != nil && l.Peer.Space != j.space
	})
}

// end removes the joins that ours selects.
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

func (j *joins) report(out *state.Space) {
	for _, want := range j.want {
		if _, equal := j.has(want); equal {
			out.Joins = append(out.Joins, want)
		}
	}
}
