// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/netfilter"
	"github.com/weft-net/weft/internal/kernel/reader"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// Namespace is where a tap and a link are joined.
type Namespace struct {
	NS      *netns.NS
	Reader  *reader.Reader
	Socket  *rtnl.Socket
	Filters *netfilter.Filters
}

// Way is one way to do a join. Each puts something on both links: what is of the way back comes first, so that nobody
// is heard who cannot be answered.
type Way struct {
	In   Namespace
	Join state.Join
	How  state.JoinHow
	// Tap and Link are the two as they were found; one that is not there has no index.
	Tap, Link link.Found
}

// is tells whether the join is done this way, exactly as wanted.
func (w Way) is(ctx context.Context) (bool, error) {
	switch w.How {
	case state.JoinForward:
		return w.forwards(ctx)
	case state.JoinMirred:
		return w.mirrors(ctx)
	}
	if limited, err := w.limited(ctx); w.How == state.JoinPeer && (err != nil || limited) {
		return false, err
	}
	return w.runs(ctx)
}

// limited tells whether somebody has what leaves over the link wait in a queue.
func (w Way) limited(ctx context.Context) (bool, error) {
	q, err := w.In.Reader.Queues(ctx, w.Link.Index, false)
	return q.Root != nil && q.Root.Handle != 0, err
}

// begin does the join.
func (w Way) begin(ctx context.Context) error {
	switch w.How {
	case state.JoinForward:
		return w.beginForward(ctx)
	case state.JoinMirred:
		return w.beginMirred(ctx)
	case state.JoinPeer:
		if limited, err := w.limited(ctx); err != nil || limited {
			return errors.Join(
				err,
				fmt.Errorf("packets that are handed to the other end of link %s pass by its queue: %w", w.Link.Name,
					unix.EOPNOTSUPP),
			)
		}
		if w.Link.Kind != state.Veth || !w.Link.PeerAway {
			return fmt.Errorf("link %s has no other end in another namespace: %w", w.Link.Name, unix.EOPNOTSUPP)
		}
	}
	return w.beginPrograms(ctx)
}

// end takes away what this way has put on the links, as far as they are there.
func (w Way) end(ctx context.Context) error {
	switch w.How {
	case state.JoinForward:
		return w.endForward(ctx)
	case state.JoinMirred:
		return w.endMirred(ctx)
	}
	return w.endPrograms(ctx)
}

// EndAll takes away what any way has put there.
func (w Way) EndAll(ctx context.Context) error {
	var errs []error
	for _, how := range []state.JoinHow{state.JoinPeer, state.JoinForward, state.JoinMirred} { // eBPF's two are one
		w.How = how
		errs = append(errs, w.end(ctx))
	}
	return errors.Join(errs...)
}

// Make does the join, in the way that is wanted; where that is open, in the first one that the kernel can.
func (w Way) Make(ctx context.Context) error {
	if err := w.EndAll(ctx); err != nil {
		return err
	}
	ways := state.JoinWays()
	if w.Join.How != "" {
		ways = []state.JoinHow{w.Join.How}
	}
	var errs []error
	for _, how := range ways {
		w.How = how
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

// Found is the way in which the join is done, "" where it is not.
func (w Way) Found(ctx context.Context) (state.JoinHow, error) {
	for _, how := range state.JoinWays() {
		w.How = how
		is, err := w.is(ctx)
		if err != nil {
			return "", err
		}
		if is {
			return how, nil
		}
	}
	return "", nil
}
