// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
)

// serve looks after the attachment of a machine that runs here: who awaits it elsewhere gets its connections, and when
// it has gone there, the attachment retires.
func (f *follower) serve(ctx context.Context, rec attach.Record) {
	var tick, look <-chan time.Time
	relay := f.relayEnds()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		case <-tick:
			tick = nil
		case <-look:
			look = nil
		case <-relay:
			relay = nil
			f.setRelay(nil)
		case <-f.told: // it is here already
		}
		if _, _, is := f.m.of(f.move); is {
			f.settle(ctx) // whoever switched, an agent before perhaps, did not come to its end
		}
		node, sure := f.elsewhere()
		if node != "" && sure {
			f.retire(ctx, rec, node)
			return
		}
		if node != "" && look == nil {
			look = f.m.cfg.After(disagree)
		}
		switch {
		case !f.m.isWanted(f):
			f.copied, tick = copied{}, nil
		case tick == nil:
			f.hand(ctx, rec, false)
			tick = f.m.cfg.After(copyPeriod)
		}
	}
}

// retire steps back. What the machine's connections were at the last is told behind it.
func (f *follower) retire(ctx context.Context, rec attach.Record, node string) {
	f.left.Store(f.m.cfg.Now().UnixNano())
	if !f.insist(ctx, "machine has left, and its addresses still lead here", f.stepBack) {
		return
	}
	f.says("machine has gone to node %s", node)
	if f.m.isWanted(f) {
		f.hand(ctx, rec, true)
	}
	f.copied = copied{}
}

// hand hands the connections over, when they are others than those that were handed over before.
func (f *follower) hand(ctx context.Context, rec attach.Record, left bool) {
	now, err := f.collect(rec)
	if err != nil {
		f.m.cfg.Log.Warn("machine's connections cannot be read", "machine", f.vm.String(), "err", err)
	}
	if !left && (err != nil || f.copied.same(now) && f.m.cfg.Now().Sub(f.copied.at) < freshPeriod) {
		return
	}
	packed, err := now.pack()
	if err != nil {
		f.m.cfg.Log.Warn("machine's connections cannot be handed over", "machine", f.vm.String(), "err", err)
	}
	if f.say(ctx, packed, left) {
		f.copied.set, f.copied.at = now, f.m.cfg.Now()
	}
}

// say writes into the move; without connections those that are there stay. It tells whether that was done.
func (f *follower) say(ctx context.Context, connections []byte, left bool) bool {
	kind := store.AddressMoves()
	o, move, is := f.m.wanted(f.own)
	for range 5 {
		if !is {
			return false
		}
		move.Source, move.Left = f.m.cfg.Node, left
		if connections != nil {
			move.Connections = connections
		}
		next, err := store.AddressMoveObject(o, move)
		if err == nil {
			_, err = f.m.cfg.Objects.CompareAndSwap(ctx, kind, o.Version, next)
		}
		if err == nil || errors.Is(err, store.ErrNotFound) {
			return err == nil
		}
		if !errors.Is(err, store.ErrConflict) {
			f.m.cfg.Log.Warn("machine's connections are not handed over", "machine", f.vm.String(), "err", err)
			return false
		}
		o, move, is = f.again(ctx, o.Key)
	}
	return false
}

// again reads a move from the store itself.
func (f *follower) again(ctx context.Context, key store.Key) (store.Object, model.AddressMove, bool) {
	o, err := f.m.cfg.Objects.Get(ctx, store.AddressMoves(), key)
	if err != nil {
		return o, model.AddressMove{}, false
	}
	move, err := o.AddressMove()
	return o, move, err == nil
}
