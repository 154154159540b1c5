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
	// Programs join links by eBPF. Without them, links are joined by other methods: a program that connects no VM does not
	// link an eBPF library.
	Programs Programs
}

// Programs join two links by eBPF programs. Package redirect implements it.
type Programs interface {
	// Run reports whether both links run exactly the programs of the join.
	Run(ctx context.Context, w Way) (bool, error)
	// Begin attaches the programs to both links.
	Begin(ctx context.Context, w Way) error
	// End detaches all programs of joins that are not filters from the existing links.
	End(ctx context.Context, w Way) error
}

// Way is a join by one method. Each method adds something to both links: the direction to the guest comes first, so
// that no frame leaves before its reply can arrive.
type Way struct {
	In   Namespace
	Join state.Join
	How  state.JoinMethod
	// Tap and Link are the two links as they were found; a missing one has no index.
	Tap, Link link.Found
}

// is reports whether the join exists by this method, exactly as wanted.
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
	if w.In.Programs == nil {
		return false, nil
	}
	return w.In.Programs.Run(ctx, w)
}

// limited reports whether the link has a root qdisc that is not the kernel's default.
func (w Way) limited(ctx context.Context) (bool, error) {
	q, err := w.In.Reader.Queues(ctx, w.Link.Index, false)
	return q.Root != nil && q.Root.Handle != 0, err
}

// begin creates the join.
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
				fmt.Errorf("packets redirected to the other end of link %s bypass its qdisc: %w", w.Link.Name,
					unix.EOPNOTSUPP),
			)
		}
		if w.Link.Kind != state.Veth || !w.Link.PeerAway {
			return fmt.Errorf("link %s has no other end in another namespace: %w", w.Link.Name, unix.EOPNOTSUPP)
		}
	}
	if w.In.Programs == nil {
		return fmt.Errorf("this program has no eBPF: %w", unix.EOPNOTSUPP)
	}
	return w.In.Programs.Begin(ctx, w)
}

// end removes what this method has added to the existing links.
func (w Way) end(ctx context.Context) error {
	switch w.How {
	case state.JoinForward:
		return w.endForward(ctx)
	case state.JoinMirred:
		return w.endMirred(ctx)
	}
	return w.EndPrograms(ctx)
}

// EndPrograms detaches eBPF programs, however they are attached.
func (w Way) EndPrograms(ctx context.Context) error {
	err := w.endMirred(ctx) // the priorities are the same
	if w.In.Programs == nil {
		return err
	}
	return errors.Join(err, w.In.Programs.End(ctx, w))
}

// EndAll removes what any method has added.
func (w Way) EndAll(ctx context.Context) error {
	var errs []error
	for _, how := range []state.JoinMethod{state.JoinPeer, state.JoinForward, state.JoinMirred} { // eBPF's two are one
		w.How = how
		errs = append(errs, w.end(ctx))
	}
	return errors.Join(errs...)
}

// Make creates the join, by the wanted method, or by the first one that the kernel supports.
func (w Way) Make(ctx context.Context) error {
	if err := w.EndAll(ctx); err != nil {
		return err
	}
	ways := state.JoinMethods()
	if w.Join.Method != "" {
		ways = []state.JoinMethod{w.Join.Method}
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

// Found returns the method of the join, "" if there is none.
func (w Way) Found(ctx context.Context) (state.JoinMethod, error) {
	for _, how := range state.JoinMethods() {
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
