// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
)

// serve handles the attachment of a VM that runs here: a target node gets its connections, and when the VM has left,
// the attachment retires.
func (f *vmFollower) serve(ctx context.Context, rec attach.Record) {
	var tick, retry <-chan time.Time
	relay := f.relayEnds()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		case <-tick:
			tick = nil
		case <-retry:
			retry = nil
		case <-relay:
			relay = nil
			f.setRelay(nil)
		case <-f.reported: // it is here already, so nothing to do
		}
		if _, _, is := f.m.of(f.move); is {
			f.settle(ctx) // the switch was not finished, perhaps by the previous agent
		}
		node, sure := f.otherNode()
		if node != "" && sure {
			f.retire(ctx, rec, node)
			return
		}
		if node != "" && retry == nil {
			retry = f.m.cfg.After(conflictPause)
		}
		switch {
		case !f.m.isRequested(f):
			f.copied, tick = copied{}, nil
		case tick == nil:
			tick = f.m.cfg.After(copyPause(f.writeConnections(ctx, rec, false)))
		}
	}
}

// leaves records that the VM leaves now.
func (f *vmFollower) leaves() {
	now := f.m.cfg.Now()
	f.left.Store(&now)
}

// leftFor returns how long ago the VM left, which it has.
func (f *vmFollower) leftFor() time.Duration { return f.m.cfg.Now().Sub(*f.left.Load()) }

// retire retires the attachment. The VM's last connections are written afterwards.
func (f *vmFollower) retire(ctx context.Context, rec attach.Record, node string) {
	f.leaves()
	if !f.retry(ctx, "attachment of a VM that has left could not be retired", f.stepBack) {
		return
	}
	f.logf("VM has moved to node %s", node)
	if f.m.isRequested(f) {
		f.writeConnections(ctx, rec, true)
	}
	f.copied = copied{}
}

// copyPause returns the pause after connections were read, and encoded, in a time: at least copyPeriod, and longer if the
// kernel has so many entries, which it cannot filter by IPv6 addresses, or the VM so many connections, that this would take
// more than a twentieth of a processor.
func copyPause(read time.Duration) time.Duration { return max(copyPeriod, 20*read) }

// writeConnections writes the connections to the move if they differ from those written before. It returns how long it
// took to read, and to encode, them.
func (f *vmFollower) writeConnections(ctx context.Context, rec attach.Record, left bool) (read time.Duration) {
	begin := f.m.cfg.Now()
	now, err := f.collect(rec)
	read = f.m.cfg.Now().Sub(begin)
	if err != nil {
		f.m.cfg.Log.Warn("connections of a VM could not be read from conntrack", "vm", f.vm.String(), "err", err)
	}
	if !left && (err != nil || f.copied.same(now) && f.m.cfg.Now().Sub(f.copied.at) < freshPeriod) {
		return read
	}
	packed, omitted, err := now.pack()
	read = f.m.cfg.Now().Sub(begin) // of many connections, most of the time
	if err != nil {
		f.m.cfg.Log.Warn("connections of a VM could not be encoded", "vm", f.vm.String(), "err", err)
	}
	if omitted > 0 && !f.copied.reported {
		f.copied.reported = true
		f.reportOmitted(rec, omitted)
	}
	if f.updateMove(ctx, packed, left) {
		f.copied.set, f.copied.at = now, f.m.cfg.Now()
	}
	return read
}

// reportOmitted reports that the VM has more connections than a move can have.
func (f *vmFollower) reportOmitted(rec attach.Record, omitted int) {
	f.m.cfg.Log.Warn("connections of a VM are too many for its migration", "vm", f.vm.String(), "omitted", omitted)
	if pod := rec.Pod(); f.m.cfg.Event != nil && pod.Name != "" {
		f.m.cfg.Event(pod, model.Event{Warning: true, Reason: "ConnectionsNotTransferred", Message: fmt.Sprintf(
			"VM %s has %d connections more than its migration can transfer: they end, unless policies of both directions allow them",
			f.vm, omitted)})
	}
}

// updateMove updates the move; nil connections leave its connections unchanged. It reports whether the move was written.
func (f *vmFollower) updateMove(ctx context.Context, connections []byte, left bool) bool {
	kind := store.AddressMoves()
	o, move, is := f.m.requestedMove(f.own)
	for range 5 {
		if !is {
			return false
		}
		move.Source, move.Departed = f.m.cfg.Node, left
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
			f.m.cfg.Log.Warn("connections of a VM could not be written to its move", "vm", f.vm.String(), "err", err)
			return false
		}
		o, move, is = f.readMove(ctx, o.Key)
	}
	return false
}

// readMove reads a move from the datastore.
func (f *vmFollower) readMove(ctx context.Context, key store.Key) (store.Object, model.AddressMove, bool) {
	o, err := f.m.cfg.Objects.Get(ctx, store.AddressMoves(), key)
	if err != nil {
		return o, model.AddressMove{}, false
	}
	move, err := o.AddressMove()
	return o, move, err == nil
}
