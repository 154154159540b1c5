// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/link"
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

// is tells whether the join is done this way, exactly as wanted.
func (w way) is(ctx context.Context) (bool, error) {
	switch w.how {
	case state.JoinForward:
		return w.forwards(ctx)
	case state.JoinMirred:
		return w.mirrors(ctx)
	}
	if limited, err := w.limited(ctx); w.how == state.JoinPeer && (err != nil || limited) {
		return false, err
	}
	return w.runs(ctx)
}

// limited tells whether somebody has what leaves over the link wait in a queue.
func (w way) limited(ctx context.Context) (bool, error) {
	q, err := w.conn.reader.Queues(ctx, w.link.Index, false)
	return q.Root != nil && q.Root.Handle != 0, err
}

// begin does the join.
func (w way) begin(ctx context.Context) error {
	switch w.how {
	case state.JoinForward:
		return w.beginForward(ctx)
	case state.JoinMirred:
		return w.beginMirred(ctx)
	case state.JoinPeer:
		if limited, err := w.limited(ctx); err != nil || limited {
			return errors.Join(err, fmt.Errorf("packets that are handed to the other end of link %s pass by its queue: %w", w.link.Name, unix.EOPNOTSUPP))
		}
		if w.link.Kind != state.Veth || !w.link.PeerAway {
			return fmt.Errorf("link %s has no other end in another namespace: %w", w.link.Name, unix.EOPNOTSUPP)
		}
	}
	return w.beginPrograms(ctx)
}

// end takes away what this way has put on the links, as far as they are there.
func (w way) end(ctx context.Context) error {
	switch w.how {
	case state.JoinForward:
		return w.endForward(ctx)
	case state.JoinMirred:
		return w.endMirred(ctx)
	}
	return w.endPrograms(ctx)
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
