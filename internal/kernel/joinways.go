// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/redirect"
	"github.com/weft-net/weft/internal/state"
)

// way is one way to do a join. Each puts something on both links: what is of the way back comes first, so that nobody is heard who
// cannot be answered.
type way struct {
	conn      *Conn
	join      state.Join
	how       state.JoinHow
	tap, link link.Found
}

// programs are those of the ways that are eBPF's: of the tap, and of the link.
func (w way) programs() (tap, back redirect.Program, err error) {
	tap, err = redirect.Guest(w.join, w.link.Index, w.how == state.JoinPeer)
	if err != nil {
		return tap, back, err
	}
	back, err = redirect.All(w.tap.Index)
	return tap, back, err
}

// is tells whether the join is done this way, exactly as wanted.
func (w way) is(ctx context.Context) (bool, error) {
	switch w.how {
	case state.JoinForward:
		return w.forwards(ctx)
	case state.JoinMirred:
		return w.mirrors(ctx)
	}
	tap, back, err := w.programs()
	if err != nil {
		return false, err
	}
	one, err := redirect.Attached(w.conn.ns, w.tap.Index)
	if err != nil || one != tap.Name {
		return false, err
	}
	other, err := redirect.Attached(w.conn.ns, w.link.Index)
	return other == back.Name, err
}

// begin does the join.
func (w way) begin(ctx context.Context) error {
	switch w.how {
	case state.JoinForward:
		return w.beginForward(ctx)
	case state.JoinMirred:
		return w.beginMirred(ctx)
	case state.JoinPeer:
		if w.link.Kind != state.Veth || !w.link.PeerAway {
			return fmt.Errorf("link %s has no other end in another namespace: %w", w.link.Name, unix.EOPNOTSUPP)
		}
	}
	tap, back, err := w.programs()
	if err != nil {
		return err
	}
	if err := redirect.Attach(w.conn.ns, w.link.Index, back); err != nil {
		return err
	}
	return redirect.Attach(w.conn.ns, w.tap.Index, tap)
}

// end takes away what this way has put on the links, as far as they are there.
func (w way) end(ctx context.Context) error {
	switch w.how {
	case state.JoinForward:
		return w.endForward(ctx)
	case state.JoinMirred:
		return w.endMirred(ctx)
	}
	var errs []error
	for _, l := range []link.Found{w.tap, w.link} {
		if l.Index != 0 {
			errs = append(errs, redirect.Detach(w.conn.ns, l.Index))
		}
	}
	return errors.Join(errs...)
}

// endAll takes away what any way has put there.
func (w way) endAll(ctx context.Context) error {
	var errs []error
	for _, how := range []state.JoinHow{state.JoinPeer, state.JoinForward, state.JoinMirred} { // eBPF's two are one
		w.how = how
		errs = append(errs, w.end(ctx))
	}
	return errors.Join(errs...)
}
