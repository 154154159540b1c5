// SPDX-License-Identifier: Apache-2.0

package phase1

import (
	"context"
	"errors"
	"slices"

	"github.com/weft-net/weft/internal/netns"
	plan "github.com/weft-net/weft/internal/plan/vm"
)

// Undo takes everything of a machine out of its pod, which is given what it had. A pod that is gone needs nothing.
func (c Config) Undo(ctx context.Context, ns *netns.NS, pod, key string) error {
	unlock, err := c.lock(ctx, key)
	if err != nil {
		return err
	}
	defer unlock()
	spaces, closeAll, err := dial(ns)
	if err != nil {
		return err
	}
	defer closeAll()
	r, found, err := c.Read(key, pod)
	if err != nil || !found {
		return err
	}
	w := &work{Config: c, spaces: spaces, record: r}
	var all []string
	for _, n := range w.record.Networks {
		all = append(all, n.Interface.Name)
	}
	return w.takeBack(ctx, all)
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
	if err := w.restorePod(ctx); err != nil {
		return err
	}
	return w.forget()
}

// restorePod gives the pod what all networks needed of it.
func (w *work) restorePod(ctx context.Context) error {
	return errors.Join(w.Step.At("restore pod"), w.spaces.Restore(ctx, w.record.Pod.Restore), w.withdraw(w.record.Vhost))
}

// rest gives back what all networks needed of the pod of a machine that is to stay there without any, and may get one
// again.
func (w *work) rest(ctx context.Context) error {
	if len(w.record.Pod.Fragment.Pod.Sysctls) == 0 && w.record.Vhost == nil {
		return nil
	}
	if err := w.restorePod(ctx); err != nil {
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
		if err := errors.Join(w.Step.At("remove"), w.withdraw(n.Tap), w.spaces.Remove(ctx, n.Fragment)); err != nil {
			return err
		}
		if err := errors.Join(w.Step.At("restore"), w.spaces.Restore(ctx, n.Restore)); err != nil {
			return err
		}
	}
	w.record.Networks = slices.Delete(w.record.Networks, i, i+1)
	return w.save("left")
}
