// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// doubted is for how long a virtual machine must have been missing for its addresses to be free: a server that starts
// does not know everything.
const doubted = time.Minute

// machines deletes the claims of virtual machines that are gone. A server that knows whose a claim is does that by
// itself; such claims are looked at seldom.
func (c *Controller) machines(ctx context.Context, all bool) error {
	claims, err := c.cfg.Objects.List(ctx, store.AddressClaims())
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("list of claims: %w", err)
	}
	var errs []error
	seen := map[string]bool{}
	for _, o := range claims {
		claim, err := o.AddressClaim()
		if err != nil || claim.VM.Kind == "" {
			continue
		}
		seen[o.Key.String()] = true
		_, missed := c.missed[o.Key.String()]
		if claim.Owned && !all && !missed {
			continue
		}
		errs = append(errs, c.machine(ctx, o, claim.VM))
	}
	maps.DeleteFunc(c.missed, func(key string, _ time.Time) bool { return !seen[key] })
	return errors.Join(errs...)
}

// machine looks for the virtual machine of a claim.
func (c *Controller) machine(ctx context.Context, o store.Object, vm model.ClaimedInterface) error {
	kind := store.VirtualMachines()
	if vm.Kind == store.VirtualMachineInstances().Kind {
		kind = store.VirtualMachineInstances()
	}
	key := o.Key.String()
	is, err := c.cfg.Objects.Get(ctx, kind, kind.Key(o.Key.Namespace, vm.Name))
	switch {
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return fmt.Errorf("%s of %s: %w", kind.Kind, key, err)
	case err == nil && same(is, vm.UID):
		delete(c.missed, key)
		return nil
	}
	now := c.cfg.Now()
	since, missed := c.missed[key]
	switch {
	case err == nil && c.cfg.Apart: // an earlier machine of that name, and agents wait for this
	case !missed:
		c.missed[key] = now
		return nil
	case now.Sub(since) < doubted:
		return nil
	}
	err = c.cfg.Objects.Delete(ctx, store.AddressClaims(), o.Key, o.Version)
	if err != nil && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("%s, whose %s is gone: %w", key, kind.Kind, err)
	}
	if err == nil {
		c.cfg.Log.Info("addresses of a virtual machine that is gone are free", "claim", key, "machine", vm.Name)
	}
	return nil
}

// same tells whether an object is the one with the uid; where nothing says who it is, it is.
func same(o store.Object, uid string) bool {
	is := o.UID()
	return uid == "" || is == "" || is == uid
}
