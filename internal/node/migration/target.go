// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"context"
	"errors"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/model"
)

// await handles a standby attachment until its VM is here or ctx ends.
func (f *vmFollower) await(ctx context.Context, rec attach.Record) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	awaited := rec.Request.Incoming() && f.left.Load() == nil
	announcements, err := watch.HearAnnouncements(ctx, nil, f.link, true, f.showsVM(f.left.Load()))
	if err != nil { // other evidence can still cause the switch
		f.m.cfg.Log.Warn("packets of a VM cannot be received", "vm", f.vm.String(), "interface", f.link, "err", err)
	}
	w := takeover{allowed: !awaited || f.pod == ""}
	var seen <-chan status
	if awaited {
		seen = f.watchInstance(ctx)
		go f.retry(ctx, "move of a VM could not be created", f.createMove)
		f.logf("VM is awaited on %s", f.link)
	}
	for {
		f.setRelaySource()
		evidence := ""
		select {
		case <-ctx.Done():
			return
		case s, ok := <-announcements:
			if !ok {
				announcements = nil
				continue
			}
			evidence = s.How
		case <-f.reported: // an administrator of this node reported it for this pod
			evidence, w.allowed = "an administrator", true
		case now := <-seen:
			if w.allowed = now.allowed; now.here {
				evidence = "its status"
			}
		case <-f.wake:
			if f.switched() {
				return
			}
			f.importConnections(beforeSwitch)
			evidence = f.woken(w.allowed, awaited)
		}
		if evidence = w.accept(f, evidence); evidence == "" {
			continue
		}
		begun := f.m.cfg.Now()
		if !f.retry(ctx, "addresses of a VM could not be switched", f.activate) {
			return
		}
		f.logf("VM is here, according to %s; switched in %s", evidence, f.m.cfg.Now().Sub(begun).Round(10*time.Microsecond))
		f.beginRelayEnd()
		if awaited {
			f.settle(ctx)
		}
		return
	}
}

// switched reports whether the attachment is gone or was switched by another caller.
func (f *vmFollower) switched() bool {
	now, found, err := f.m.cfg.Records.Get(f.key)
	return err == nil && (!found || !now.Standby)
}

// woken checks again whether the pod may take over the addresses, and which node has them; it returns evidence that
// the VM is here, if that is some.
func (f *vmFollower) woken(allowed, awaited bool) string {
	if !allowed {
		f.reread.Notify() // a move may allow the takeover
	}
	if awaited && f.vmLeftSource() {
		return "the other node"
	}
	return ""
}

// takeover is the state of an awaited VM.
type takeover struct {
	// allowed reports that the pod may take over the addresses. early is the first evidence that came before that
	// was known.
	allowed bool
	early   string
}

// accept returns the evidence that the VM is here; empty while there is none or the pod may not take over the
// addresses. The parameter is new evidence, which triggers the switch. Evidence that comes too early is kept: the
// permission may follow.
func (w *takeover) accept(f *vmFollower, evidence string) string {
	if w.allowed {
		if evidence == "" {
			evidence = w.early
		}
		return evidence
	}
	if evidence != "" && w.early == "" {
		w.early = evidence
		f.m.cfg.Log.Warn(
			"pod claims a running VM without being the target of its migration; addresses are not switched",
			"vm", f.vm.String(), "pod", f.pod, "evidence", evidence, "attachment", f.key.String())
		f.reread.Notify()
	}
	return ""
}

// showsVM returns the filter of packets that show that the VM runs here: an announcement (ARP, NDP), or a packet of an
// imported connection. For a VM that has been here, any packet does: no other endpoint has its addresses.
func (f *vmFollower) showsVM(left *time.Time) func(watch.HeardAnnouncement) bool {
	back := left != nil
	return func(s watch.HeardAnnouncement) bool {
		switch {
		case f.mac != ([6]byte{}) && s.MAC != f.mac:
			return false
		case back && f.m.cfg.Now().Sub(*left) < quietTime:
			return false // it was in flight when the VM left
		case s.How == "rarp":
			return true
		case s.How == "ip":
			return f.own(s.Addr) && (back || f.knows(s))
		}
		return f.own(s.Addr)
	}
}

// vmLeftSource reports whether the VM is not on its source node any more.
func (f *vmFollower) vmLeftSource() bool {
	_, move, is := f.m.of(f.move)
	return is && move.Departed
}

// createMove creates the move.
func (f *vmFollower) createMove(ctx context.Context) error {
	kind := store.AddressMoves()
	want := model.AddressMove{
		Namespace: f.move.Namespace, Name: f.move.Name, VM: f.vm.Name, Addrs: f.addrs, Target: f.m.cfg.Node,
	}
	o, err := store.AddressMoveObject(store.Object{}, want)
	if err == nil {
		_, err = f.m.cfg.Objects.Create(ctx, kind, o)
	}
	if errors.Is(err, store.ErrExists) {
		return nil // the previous agent has created it
	}
	return err
}

// settle imports the last connections, and deletes the move.
func (f *vmFollower) settle(ctx context.Context) {
	f.importConnections(atSwitch)
	enough := f.m.cfg.After(settleTime)
	for !f.vmLeftSource() {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
			f.importConnections(afterSwitch)
			continue
		case <-enough:
		}
		break
	}
	f.importConnections(afterSwitch)
	if o, _, is := f.m.of(f.move); is {
		f.m.deleteMove(ctx, o)
	}
}

// deleteMove deletes a move.
func (m *Mover) deleteMove(ctx context.Context, o store.Object) {
	kind := store.AddressMoves()
	for range 3 {
		err := m.cfg.Objects.Delete(ctx, kind, o.Key, o.Version)
		if err == nil || errors.Is(err, store.ErrNotFound) {
			return
		}
		if !errors.Is(err, store.ErrConflict) {
			m.cfg.Log.Warn("move could not be deleted", "move", o.Key.String(), "err", err)
			return
		}
		if o, err = m.cfg.Objects.Get(ctx, kind, o.Key); err != nil {
			return
		}
	}
}
