// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/model"
)

// await waits on behalf of an attachment that stands by until its machine is here; it ends when that is so, or with
// ctx.
func (f *follower) await(ctx context.Context, rec attach.Record) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	awaited := rec.Request.Incoming() && f.left.Load() == 0
	heard, err := watch.Hear(ctx, nil, f.link, true, f.means(f.left.Load()))
	if err != nil { // the switch is left to who says so
		f.m.cfg.Log.Warn("machine cannot be heard", "machine", f.vm.String(), "link", f.link, "err", err)
	}
	w := waiting{allowed: !awaited || f.pod == ""}
	var seen <-chan word
	if awaited {
		seen = f.look(ctx)
		go f.insist(ctx, "machine's connections are not asked for", f.ask)
		f.says("machine is awaited on %s", f.link)
	}
	for {
		f.comesFrom()
		how := ""
		select {
		case <-ctx.Done():
			return
		case s, ok := <-heard:
			if !ok {
				heard = nil
				continue
			}
			how = s.How
		case <-f.told: // root on this node says so, of this pod
			how, w.allowed = "told", true
		case now := <-seen:
			if w.allowed = now.allowed; now.here {
				how = "its status"
			}
		case <-f.wake:
			if f.switched() {
				return
			}
			f.bring(early)
			how = f.woken(w.allowed, awaited)
		}
		if how = w.sign(f, how); how == "" {
			continue
		}
		begun := f.m.cfg.Now()
		if !f.insist(ctx, "machine's addresses are not switched yet", f.activate) {
			return
		}
		f.says("machine is here, as %s says; switched in %s", how, f.m.cfg.Now().Sub(begun).Round(10*time.Microsecond))
		f.hasCome()
		if awaited {
			f.settle(ctx)
		}
		return
	}
}

// switched reports whether somebody else has switched the attachment, or it is gone.
func (f *follower) switched() bool {
	now, found, err := f.m.cfg.Records.Get(f.key)
	return err == nil && (!found || !now.Standby)
}

// woken looks again at who may have the addresses, and who still has them; it names the sign that the machine is here,
// if that is one.
func (f *follower) woken(allowed, awaited bool) string {
	if !allowed {
		f.reread.Notify() // a move may allow it
	}
	if awaited && f.deserted() {
		return "the other node"
	}
	return ""
}

// waiting is what is known while a machine is awaited.
type waiting struct {
	// allowed: the pod may take the addresses over. heard is the first sign that came before that was known.
	allowed bool
	heard   string
}

// sign is what says that the machine is here, empty while nothing does or the pod may not take the addresses over. How
// is what says so now. A sign that comes too early is kept: the permission may be on its way.
func (w *waiting) sign(f *follower, how string) string {
	if w.allowed {
		if how == "" {
			how = w.heard
		}
		return how
	}
	if how != "" && w.heard == "" {
		w.heard = how
		f.m.cfg.Log.Warn(
			"pod says that a running machine is here, and is not known to be the target of its migration; its addresses stay where they are",
			"machine", f.vm.String(), "pod", f.pod, "sign", how, "attachment", f.key.String())
		f.reread.Notify()
	}
	return ""
}

// means tells what of all that is heard says that the machine runs here: an announcement, or a packet of a connection
// that was brought along. Of a machine that has been here, any packet does: nobody else has its addresses.
func (f *follower) means(left int64) func(watch.Speech) bool {
	back := left != 0
	return func(s watch.Speech) bool {
		switch {
		case f.mac != ([6]byte{}) && s.MAC != f.mac:
			return false
		case back && f.m.cfg.Now().Sub(time.Unix(0, left)) < calm:
			return false // it was on its way when the machine left
		case s.How == "rarp":
			return true
		case s.How == "ip":
			return f.own(s.Addr) && (back || f.knows(s))
		}
		return f.own(s.Addr)
	}
}

// deserted tells whether the machine is no more on the node that it comes from.
func (f *follower) deserted() bool {
	_, move, is := f.m.of(f.move)
	return is && move.Left
}

// ask makes the move.
func (f *follower) ask(ctx context.Context) error {
	kind := store.AddressMoves()
	want := model.AddressMove{
		Namespace: f.move.Namespace, Name: f.move.Name, Machine: f.vm.Name, Addrs: f.addrs, Target: f.m.cfg.Node,
	}
	o, err := store.AddressMoveObject(store.Object{}, want)
	if err == nil {
		_, err = f.m.cfg.Objects.Create(ctx, kind, o)
	}
	if errors.Is(err, store.ErrExists) {
		return nil // an agent before has made it
	}
	return err
}

// settle brings the last connections, and takes the move away.
func (f *follower) settle(ctx context.Context) {
	f.bring(atLast)
	enough := f.m.cfg.After(settleTime)
	for !f.deserted() {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
			f.bring(behind)
			continue
		case <-enough:
		}
		break
	}
	f.bring(behind)
	if o, _, is := f.m.of(f.move); is {
		f.m.forget(ctx, o)
	}
}

// forget deletes a move.
func (m *Mover) forget(ctx context.Context, o store.Object) {
	kind := store.AddressMoves()
	for range 3 {
		err := m.cfg.Objects.Delete(ctx, kind, o.Key, o.Version)
		if err == nil || errors.Is(err, store.ErrNotFound) {
			return
		}
		if !errors.Is(err, store.ErrConflict) {
			m.cfg.Log.Warn("move is left behind", "move", o.Key.String(), "err", err)
			return
		}
		if o, err = m.cfg.Objects.Get(ctx, kind, o.Key); err != nil {
			return
		}
	}
}
