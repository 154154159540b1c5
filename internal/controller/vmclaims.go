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

// vmMissingFor is how long a virtual machine must have been missing before its addresses are released: a starting
// server may not have all objects.
const vmMissingFor = time.Minute

// releaseVMClaims deletes the claims of deleted virtual machines. Claims with an ownerReference are deleted by
// Kubernetes itself and are checked rarely.
func (c *Controller) releaseVMClaims(ctx context.Context, all bool) error {
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
		_, missed := c.missingSince[o.Key.String()]
		if claim.Owned && !all && !missed {
			continue
		}
		errs = append(errs, c.releaseVMClaim(ctx, o, claim.VM))
	}
	maps.DeleteFunc(c.missingSince, func(key string, _ time.Time) bool { return !seen[key] })
	return errors.Join(errs...)
}

// releaseVMClaim deletes a claim if its virtual machine is gone.
func (c *Controller) releaseVMClaim(ctx context.Context, o store.Object, vm model.ClaimedInterface) error {
	kind := store.VirtualMachines()
	if vm.Kind == store.VirtualMachineInstances().Kind {
		kind = store.VirtualMachineInstances()
	}
	key := o.Key.String()
	is, err := c.cfg.Objects.Get(ctx, kind, kind.Key(o.Key.Namespace, vm.Name))
	switch {
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return fmt.Errorf("%s of %s: %w", kind.Kind, key, err)
	case err == nil && sameObject(is, vm.UID):
		delete(c.missingSince, key)
		return nil
	}
	now := c.cfg.Now()
	since, missed := c.missingSince[key]
	switch {
	case err == nil && c.cfg.Separate: // of a previous VM of that name, and agents wait for its deletion
	case !missed:
		c.missingSince[key] = now
		return nil
	case now.Sub(since) < vmMissingFor:
		return nil
	}
	err = c.cfg.Objects.Delete(ctx, store.AddressClaims(), o.Key, o.Version)
	if err != nil && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("%s, whose %s is gone: %w", key, kind.Kind, err)
	}
	if err == nil {
		c.cfg.Log.Info("addresses of a deleted VM were released", "claim", key, "vm", vm.Name)
	}
	return nil
}

// sameObject reports whether an object has the uid; true if either is unknown.
func sameObject(o store.Object, uid string) bool {
	is := o.UID()
	return uid == "" || is == "" || is == uid
}
