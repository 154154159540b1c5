// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weft-net/weft/internal/state"
)

// joined is what is there of a join: the way in which it is done, "" where it is not.
type joined struct {
	how state.JoinHow
}

// readJoins looks how the joins are done that the space names.
func (v *view) readJoins(ctx context.Context) error {
	v.joins = map[string]joined{}
	for _, j := range v.want.Joins {
		tap, there := v.old(j.Tap)
		link, too := v.old(j.Link)
		if !there || !too {
			continue
		}
		for _, how := range state.JoinWays() {
			w := way{conn: v.conn, join: j, how: how, tap: tap, link: link}
			is, err := w.is(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", j, err)
			}
			if is {
				v.joins[j.Tap] = joined{how: how}
				break
			}
		}
	}
	return nil
}

// hasJoin tells what is there of a join, in words, and whether it is as wanted. Where the way is open, any will do.
func (v *view) hasJoin(want state.Join) (have string, equal bool) {
	is, ok := v.joins[want.Tap]
	if !ok {
		return "", false
	}
	found := want
	found.How = is.how
	return found.String(), want.How == "" || want.How == is.how
}

// joinLinks does the joins that are missing, before their links come up. Where the way is open, the first one that the kernel can
// is taken.
func (v *view) joinLinks(ctx context.Context) error {
	for _, j := range v.want.Joins {
		if _, equal := v.hasJoin(j); equal {
			continue
		}
		tap, there := v.links[j.Tap]
		link, too := v.links[j.Link]
		if !there || !too {
			return in(v.name, fmt.Errorf("%s: %w", j, ErrMissing))
		}
		link.PeerAway = link.PeerAway || v.endsElsewhere(j.Link)
		if err := v.joinLink(ctx, way{conn: v.conn, join: j, tap: tap, link: link}); err != nil {
			return in(v.name, fmt.Errorf("%s: %w", j, err))
		}
	}
	return nil
}

// endsElsewhere tells whether a link that this Apply made is an end of a pair between the namespaces.
func (v *view) endsElsewhere(name string) bool {
	return v.made[name] && slices.ContainsFunc(v.want.Links, func(l state.Link) bool {
		return l.Name == name && l.Peer != nil && l.Peer.Space != v.name
	})
}

func (v *view) joinLink(ctx context.Context, w way) error {
	if err := w.endAll(ctx); err != nil {
		return err
	}
	ways := state.JoinWays()
	if w.join.How != "" {
		ways = []state.JoinHow{w.join.How}
	}
	var errs []error
	for _, how := range ways {
		w.how = how
		err := w.begin(ctx)
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", how, err))
		if err := w.end(ctx); err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	return errors.Join(errs...)
}

// parts ends the joins, unless the tap is another one's by now.
func (r *removal) parts(ctx context.Context, v *view) error {
	var errs []error
	for _, j := range v.want.Joins {
		if r.anothers(v, j.Tap) && v.links[j.Tap].Index != 0 {
			continue
		}
		w := way{conn: v.conn, join: j, tap: v.links[j.Tap], link: v.links[j.Link]}
		errs = append(errs, w.endAll(ctx))
	}
	return in(v.name, errors.Join(errs...))
}

func (v *view) diffJoins(out *list) {
	for _, want := range v.want.Joins {
		if have, equal := v.hasJoin(want); !equal {
			out.add(v.name, want, have)
		}
	}
}
