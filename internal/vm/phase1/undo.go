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

// Undo takes everything of a machine out of its pod, which is given what it had. A pod that is gone needs nothing.
func (c Config) Undo(ctx context.Context, ns *netns.NS, pod, key string) error {
	_, err := c.UndoSome(ctx, ns, pod, key, func(attach.Act) bool { return true })
	return err
}

// UndoSome undoes the chosen networks of a machine, the last one first, and with the last one what all of them needed
// of the pod; it tells what is left. The pod, which may be gone, is nil then.
func (c Config) UndoSome(
	ctx context.Context, ns *netns.NS, pod, key string, out func(attach.Act) bool,
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
	w := &work{Config: c, spaces: spaces, record: r}
	var names []string
	for _, act := range r.stored().Acts {
		if act.Interface != nil && out(act) {
			names = append(names, act.Interface.Name)
		}
	}
	if err := w.takeBack(ctx, names); err != nil {
		return Record{}, err
	}
	return w.record, nil
}

// Forget forgets a machine without undoing anything: of another boot nothing is left.
func (c Config) Forget(ctx context.Context, pod, key string) error {
	unlock, err := c.lock(ctx, key)
	if err != nil {
		return err
	}
	defer unlock()
	return c.records().Delete(attach.MachineKey(key, pod))
}

// takeBack undoes networks, the last one first.
func (w *work) takeBack(ctx context.Context, names []string) error {
	for i := len(w.record.Networks) - 1; i >= 0; i-- {
		n := w.record.Networks[i]
		if n.State == Pending || slices.Contains(names, n.Interface.Name) {
			if err := w.leave(ctx, n.Interface.Name); err != nil {
				return err
			}
		}
	}
	if len(w.record.Networks) > 0 || !w.record.exists {
		return nil
	}
	if err := w.undo(ctx, "pod", w.record.Vhost, w.record.Pod); err != nil {
		return err
	}
	return w.forget()
}

// rest gives back what all networks needed of the pod of a machine that is to stay there without any, and may get one
// again.
func (w *work) rest(ctx context.Context) error {
	if len(w.record.Pod.Fragment.Pod.Sysctls) == 0 && w.record.Vhost == nil {
		return nil
	}
	if err := w.undo(ctx, "pod", w.record.Vhost, w.record.Pod); err != nil {
		return err
	}
	w.record.Pod, w.record.Vhost = plan.Step{}, nil
	return w.save("rested")
}

// leave undoes one network.
func (w *work) leave(ctx context.Context, name string) error {
	i := w.record.find(name)
	n := &w.record.Networks[i]
	if n.State != Pending {
		n.State = Leaving
		if err := w.save("leaving"); err != nil {
			return err
		}
		if err := w.undo(ctx, "network", n.Tap, n.Step); err != nil {
			return err
		}
	}
	w.record.Networks = slices.Delete(w.record.Networks, i, i+1)
	return w.save("left")
}

// undo undoes one act: takes back what was given, removes what was made and gives back what was there before. A device
// that cannot be taken back is no reason to leave the rest.
func (w *work) undo(ctx context.Context, what string, given *Given, done plan.Step) error {
	if err := w.Step.At("remove " + what); err != nil {
		return err
	}
	device := w.withdraw(given)
	if err := w.spaces.Remove(ctx, done.Fragment); err != nil {
		return errors.Join(device, err)
	}
	if err := w.Step.At("restore " + what); err != nil {
		return errors.Join(device, err)
	}
	return errors.Join(device, w.spaces.Restore(ctx, done.Restore))
}
