// SPDX-License-Identifier: Apache-2.0

package phase1

import (
	"context"
	"errors"
	"slices"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/netns"
	plan "github.com/weft-net/weft/internal/plan/vm"
)

// Undo removes a VM from its pod and restores the pod's network. A pod that is gone needs nothing.
func (c Config) Undo(ctx context.Context, ns *netns.NS, pod, key string) error {
	_, err := c.UndoSome(ctx, ns, pod, key, func(attach.Act) bool { return true })
	return err
}

// UndoSome undoes the chosen networks of a VM, the last one first, and with the last one what all of them share in the
// pod. It returns the remaining record. ns is nil if the pod is gone.
func (c Config) UndoSome(
	ctx context.Context, ns *netns.NS, pod, key string, chosen func(attach.Act) bool,
) (Record, error) {
	unlock, err := c.lock(ctx, key)
	if err != nil {
		return Record{}, err
	}
	defer unlock()
	spaces, closeAll, err := dial(ns)
	if err != nil {
		return Record{}, err
	}
	defer closeAll()
	r, found, err := c.Read(key, pod)
	if err != nil || !found {
		return Record{}, err
	}
	w := &call{Config: c, spaces: spaces, record: r}
	var names []string
	for _, act := range r.stored().Acts {
		if act.Interface != nil && chosen(act) {
			names = append(names, act.Interface.Name)
		}
	}
	if err := w.rollback(ctx, names); err != nil {
		return Record{}, err
	}
	return w.record, nil
}

// Forget deletes the record of a VM without undoing it, because nothing of an earlier boot is left.
func (c Config) Forget(ctx context.Context, pod, key string) error {
	unlock, err := c.lock(ctx, key)
	if err != nil {
		return err
	}
	defer unlock()
	return c.records().Delete(attach.VMKey(key, pod))
}

// rollback undoes networks, the last one first.
func (w *call) rollback(ctx context.Context, names []string) error {
	for i := len(w.record.Networks) - 1; i >= 0; i-- {
		n := w.record.Networks[i]
		if n.State == Pending || slices.Contains(names, n.Interface.Name) {
			if err := w.removeNetwork(ctx, n.Interface.Name); err != nil {
				return err
			}
		}
	}
	if len(w.record.Networks) > 0 || !w.record.exists {
		return nil
	}
	if err := w.undoAct(ctx, "pod", w.record.Vhost, w.record.Shared); err != nil {
		return err
	}
	return w.forget()
}

// releaseShared restores what all networks shared in the pod of a VM that stays there without networks; it may get one
// again.
func (w *call) releaseShared(ctx context.Context) error {
	if len(w.record.Shared.Fragment.Pod.Sysctls) == 0 && w.record.Vhost == nil {
		return nil
	}
	if err := w.undoAct(ctx, "pod", w.record.Vhost, w.record.Shared); err != nil {
		return err
	}
	w.record.Shared, w.record.Vhost = plan.Step{}, nil
	return w.save("rested")
}

// removeNetwork undoes one network.
func (w *call) removeNetwork(ctx context.Context, name string) error {
	i := w.record.find(name)
	n := &w.record.Networks[i]
	if n.State != Pending {
		n.State = Leaving
		if err := w.save("leaving"); err != nil {
			return err
		}
		if err := w.undoAct(ctx, "network", n.Tap, n.Step); err != nil {
			return err
		}
	}
	w.record.Networks = slices.Delete(w.record.Networks, i, i+1)
	return w.save("left")
}

// undoAct undoes one act: it withdraws the granted device, removes what was created and restores the pre-image. A device
// that cannot be withdrawn does not prevent the rest.
func (w *call) undoAct(ctx context.Context, what string, granted *GrantedDevice, done plan.Step) error {
	if err := w.Step.At("remove " + what); err != nil {
		return err
	}
	device := w.withdraw(granted)
	if err := w.spaces.Remove(ctx, done.Fragment); err != nil {
		return errors.Join(device, err)
	}
	if err := w.Step.At("restore " + what); err != nil {
		return errors.Join(device, err)
	}
	return errors.Join(device, w.spaces.Restore(ctx, done.Restore))
}
