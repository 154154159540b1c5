// SPDX-License-Identifier: Apache-2.0

package flowserver

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/node/observer"
)

// restricted passes on what a caller may see of a stream.
type restricted struct {
	observer.Sink
	ctx    context.Context
	caller *caller
	// filter selects among the flows that the caller may see.
	filter flow.Filter
	// shown are the addresses whose holders the caller knows.
	shown map[holder]bool
}

type holder struct {
	addr    netip.Addr
	network string
}

// Send implements observer.Sink. A right that cannot be checked ends the stream.
func (r *restricted) Send(l flow.Line) error {
	l, show, err := r.line(l)
	if err != nil || !show {
		return err
	}
	return r.Sink.Send(l)
}

// line returns what the caller may see of a line.
func (r *restricted) line(l flow.Line) (flow.Line, bool, error) {
	all, err := r.caller.may(r.ctx, "")
	if err != nil {
		return l, false, err
	}
	switch {
	case l.Flow != nil:
		record, show := *l.Flow, true
		if !all {
			if record, show, err = r.record(record); err != nil {
				return l, false, err
			}
		}
		return flow.Line{Flow: &record}, show && r.filter.Match(record, nil), nil
	case all:
		return l, true, nil
	case l.Holder != nil:
		show, err := r.holder(*l.Holder)
		return flow.Line{Holder: l.Holder}, show, err
	case l.Begin != nil:
		b := *l.Begin
		if len(b.Notes) > 0 { // they may name pods
			b.Notes = []string{"a part is not observed; who may get flows of all namespaces sees which"}
		}
		return flow.Line{Begin: &b}, true, nil
	}
	return flow.Line{Lost: l.Lost, Known: l.Known}, true, nil // and nothing else that a line may have
}

// holder reports whether the caller may know the holder of an address, or that it has none any more.
func (r *restricted) holder(h flow.Holder) (bool, error) {
	key := holder{h.Addr, h.Network}
	known := r.shown[key]
	delete(r.shown, key)
	if h.Identity == nil {
		return known, nil
	}
	show, err := r.sees(*h.Identity)
	if err != nil || !show {
		return false, err
	}
	r.shown[key] = true
	return true, nil
}

// sees reports whether the caller may see the flows of what holds an address. Nodes and what is outside have no namespace.
func (r *restricted) sees(i flow.Identity) (bool, error) {
	namespace, _, ok := strings.Cut(i.Name, "/")
	if !ok || i.Kind == flow.NodeEnd {
		return false, nil
	}
	return r.caller.may(r.ctx, namespace)
}

// record returns what the caller may see of a flow: one with no end in a namespace of the caller is not shown. Of an end in another
// namespace only the address is, and not what its policies decided; nodes are shown.
func (r *restricted) record(f flow.Record) (flow.Record, bool, error) {
	from, err := r.sees(f.From.Identity)
	if err != nil {
		return f, false, err
	}
	to, err := r.sees(f.To.Identity)
	if err != nil {
		return f, false, err
	}
	via := false
	if f.Via != nil {
		if via, err = r.sees(f.Via.Identity); err != nil {
			return f, false, err
		}
	}
	if !from && !to && !via {
		return f, false, nil
	}
	hide := func(e *flow.Endpoint, seen bool) {
		if _, _, namespaced := strings.Cut(e.Name, "/"); namespaced && !seen {
			e.Identity = flow.Identity{Kind: flow.HiddenEnd}
		}
	}
	hide(&f.From, from)
	hide(&f.To, to)
	if f.Via != nil {
		v := *f.Via
		hide(&v, via)
		f.Via = &v
	}
	f.Decisions = slices.DeleteFunc(slices.Clone(f.Decisions), func(d flow.Decision) bool {
		return d.Direction == flow.Egress && !from || d.Direction == flow.Ingress && !to
	})
	return f, true, nil
}
