// SPDX-License-Identifier: Apache-2.0

package addressclaims

import (
	"cmp"
	"context"
	"errors"
	"net/netip"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/claims"
	"github.com/weft-net/weft/internal/model"
)

// A virtual machine keeps its addresses by an AddressClaim that weft creates: the first pod of the VM creates one for
// each interface, owned by the VM's object, so that it is garbage-collected with it. Unlike other claims, two pods may
// use it at a time: during a live migration the second one is on standby.

// vmClaim returns the claim of the VM that an attachment belongs to, and creates it if there is none. The zero value:
// the VM has no addresses to keep.
func (ac *Claims) vmClaim(ctx context.Context, req ipam.Request) (Claim, error) {
	if req.VM == nil {
		return Claim{}, nil
	}
	c, err := ac.getClaim(ctx, req.VM.Namespace+"/"+req.VM.ClaimName(req.Network, req.IfName))
	missing := errors.Is(err, store.ErrNotFound)
	c.VM, c.Pod = req.VM, podOf(req)
	if err != nil && !missing || c.StoreSilent {
		return c, err
	}
	if missing && req.Incoming {
		return Claim{}, nil // the VM's addresses belong to its current pod
	}
	owner, err := ac.vmObject(ctx, *req.VM)
	if err != nil {
		return c, err
	}
	if !missing && ofEarlierVM(c.object, req.VM.UID, owner) {
		err := ac.deleteClaim(ctx, c)
		if err != nil {
			return c, err
		}
		missing = true
	}
	if !missing {
		return c, nil
	}
	if owner.Version == "" && req.UnverifiedVM && ac.cfg.VMsKnown {
		ac.cfg.Log.Warn("agent keeps no addresses for a VM that does not exist", "vm", req.VM.String(),
			"container", req.ContainerID)
		return Claim{}, nil
	}
	return ac.createClaim(ctx, c.ID, req, owner)
}

// vmObject returns the object that owns a VM's claims: the VirtualMachine, or else the VirtualMachineInstance. Without
// a version: there is neither.
func (ac *Claims) vmObject(ctx context.Context, vm model.VMRef) (store.Object, error) {
	for _, kind := range []store.Kind{store.VirtualMachines(), store.VirtualMachineInstances()} {
		o, err := store.WithTimeout(ctx, func(ctx context.Context) (store.Object, error) {
			return ac.cfg.Objects.Get(ctx, kind, kind.Key(vm.Namespace, vm.Name))
		})
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return store.Object{}, store.Unreachable("virtual machine "+vm.String(), err)
		}
		return o, nil
	}
	return store.Object{}, nil
}

// ofEarlierVM reports whether a claim belongs to an earlier VM of the same name.
func ofEarlierVM(claim store.Object, uid string, owner store.Object) bool {
	c, err := claim.AddressClaim()
	if err != nil {
		return false
	}
	if owner.Version != "" {
		uid = cmp.Or(owner.UID(), uid)
	}
	return c.VM.UID != "" && uid != "" && c.VM.UID != uid
}

// deleteClaim deletes the claim of an earlier VM. Nodes that have its addresses detect that.
func (ac *Claims) deleteClaim(ctx context.Context, c Claim) error {
	if ac.cfg.SeparateController {
		return model.Errorf(model.CodeTryAgain,
			"the controller deletes it; it is retried; does the Deployment weft-controller run?",
			"%s belongs to an earlier VM of that name", c.ID)
	}
	_, err := store.WithTimeout(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, ac.cfg.Objects.Delete(ctx, store.AddressClaims(), c.object.Key, c.object.Version)
	})
	if err == nil || errors.Is(err, store.ErrNotFound) {
		ac.cfg.Log.Info("agent deleted the claim of an earlier VM of the same name", "claim", c.ID)
		return nil
	}
	if errors.Is(err, store.ErrConflict) {
		return model.Errorf(model.CodeTryAgain, "", "%s was changed meanwhile: %w", c.ID, err)
	}
	return store.Unreachable(c.ID, err)
}

// createClaim creates a claim without addresses.
func (ac *Claims) createClaim(
	ctx context.Context, id string, req ipam.Request, owner store.Object,
) (Claim, error) {
	c := Claim{ID: id, VM: req.VM}
	kind, key := claims.ObjectKey(id)
	vm := model.ClaimedInterface{Name: req.VM.Name, UID: req.VM.UID, Network: req.Network, IfName: req.IfName}
	if owner.Version != "" {
		vm.Kind, vm.UID = owner.Key.Kind, cmp.Or(owner.UID(), vm.UID)
	}
	o, err := store.NewAddressClaim(model.AddressClaim{Namespace: key.Namespace, Name: key.Name, VM: vm})
	if err == nil && owner.Version != "" {
		o, err = o.OwnedBy(owner)
	}
	if err != nil {
		return c, err
	}
	got, err := store.WithTimeout(ctx, func(ctx context.Context) (store.Object, error) {
		return ac.cfg.Objects.Create(ctx, kind, o)
	})
	switch {
	case errors.Is(err, store.ErrExists):
		return c, model.Errorf(model.CodeTryAgain, "", "%s was created meanwhile: %w", c.ID, err)
	case errors.Is(err, store.ErrNotFound):
		return c, model.Errorf(model.CodeTryAgain, "are the definitions of deploy/crds installed, and is there a namespace "+
			key.Namespace+"?", "%s cannot be created: %w", c.ID, err)
	case err != nil:
		return c, store.Unreachable(c.ID, err)
	}
	c.object = got
	return c, nil
}

// Standby returns the claim's addresses for an attachment that is on standby during a migration. False: it is not, or
// there are none.
func (c Claim) Standby(req ipam.Request) ([]netip.Addr, bool) {
	return c.Addrs, req.Incoming && len(c.Addrs) > 0
}
