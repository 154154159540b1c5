// SPDX-License-Identifier: Apache-2.0

package blocks

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

// What is promised to a virtual machine is an AddressClaim that nobody has to write: the first pod that the machine
// runs in makes it, one for each of its interfaces, and it belongs to the machine's object, so that it goes with that.
// Beyond what people's claims can do it can be used by two pods at a time: while the machine migrates, the second
// stands by.

// machineClaim finds the promise to the machine that an attachment is of, and makes it where there is none. The zero
// value: there is nothing to keep.
func (ac *addressClaims) machineClaim(ctx context.Context, ask ipam.Ask) (addressClaim, error) {
	if ask.VM == nil {
		return addressClaim{}, nil
	}
	c, err := ac.lookClaim(ctx, ask.VM.Namespace+"/"+ask.VM.Promise(ask.Network, ask.IfName))
	missing := errors.Is(err, store.ErrNotFound)
	c.machine, c.pod = ask.VM, podOf(ask)
	if err != nil && !missing || c.silent {
		return c, err
	}
	if missing && ask.Incoming {
		return addressClaim{}, nil // where it runs, its addresses are the pod's own
	}
	owner, err := ac.machineObject(ctx, *ask.VM)
	if err != nil {
		return c, err
	}
	if !missing && earlier(c.object, ask.VM.UID, owner) {
		err := ac.dropClaim(ctx, c)
		if err != nil {
			return c, err
		}
		missing = true
	}
	if !missing {
		return c, nil
	}
	if owner.Version == "" && ask.Unproven && ac.cfg.MachinesKnown {
		ac.cfg.Log.Warn("nothing is promised to a virtual machine that there is not", "machine", ask.VM.String(),
			"container", ask.ContainerID)
		return addressClaim{}, nil
	}
	return ac.makeClaim(ctx, c.id, ask, owner)
}

// machineObject is the object of a machine that lasts: the VirtualMachine, or the instance where it has none. Without a
// version: there is no object.
func (ac *addressClaims) machineObject(ctx context.Context, vm model.VMRef) (store.Object, error) {
	for _, kind := range []store.Kind{store.VirtualMachines(), store.VirtualMachineInstances()} {
		o, err := store.Bounded(ctx, func(ctx context.Context) (store.Object, error) {
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

// earlier tells whether a promise was made to an earlier machine of the name.
func earlier(claim store.Object, uid string, owner store.Object) bool {
	c, err := claim.AddressClaim()
	if err != nil {
		return false
	}
	if owner.Version != "" {
		uid = cmp.Or(owner.UID(), uid)
	}
	return c.VM.UID != "" && uid != "" && c.VM.UID != uid
}

// dropClaim takes the promise to an earlier machine away. Nodes that keep its addresses find that out.
func (ac *addressClaims) dropClaim(ctx context.Context, c addressClaim) error {
	if ac.cfg.Apart {
		return model.Faultf(model.CodeTryAgain,
			"the controller takes it away, and then it is tried again; does the Deployment weft-controller run?",
			"%s is a promise to an earlier virtual machine of that name", c.id)
	}
	_, err := store.Bounded(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, ac.cfg.Objects.Delete(ctx, store.AddressClaims(), c.object.Key, c.object.Version)
	})
	if err == nil || errors.Is(err, store.ErrNotFound) {
		ac.cfg.Log.Info("promise to an earlier virtual machine of the name taken away", "claim", c.id)
		return nil
	}
	if errors.Is(err, store.ErrConflict) {
		return model.Faultf(model.CodeTryAgain, "", "%s was changed meanwhile: %w", c.id, err)
	}
	return store.Unreachable(c.id, err)
}

// makeClaim makes a promise, without addresses yet.
func (ac *addressClaims) makeClaim(
	ctx context.Context, id string, ask ipam.Ask, owner store.Object,
) (addressClaim, error) {
	c := addressClaim{id: id, machine: ask.VM}
	kind, key := claims.Place(id)
	vm := model.ClaimedInterface{Name: ask.VM.Name, UID: ask.VM.UID, Network: ask.Network, IfName: ask.IfName}
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
	got, err := store.Bounded(ctx, func(ctx context.Context) (store.Object, error) {
		return ac.cfg.Objects.Create(ctx, kind, o)
	})
	switch {
	case errors.Is(err, store.ErrExists):
		return c, model.Faultf(model.CodeTryAgain, "", "%s was made meanwhile: %w", c.id, err)
	case errors.Is(err, store.ErrNotFound):
		return c, model.Faultf(model.CodeTryAgain, "are the definitions of deploy/crds installed, and is there a namespace "+
			key.Namespace+"?", "%s cannot be made: %w", c.id, err)
	case err != nil:
		return c, store.Unreachable(c.id, err)
	}
	c.object = got
	return c, nil
}

// standby is what an attachment gets that stands by for the one that has the claim's addresses: the same. False: nobody
// has any.
func (c addressClaim) standby(ask ipam.Ask) ([]netip.Addr, bool) {
	return c.addrs, ask.Incoming && len(c.addrs) > 0
}

// Keeps tells that addresses stay with virtual machines.
func (a *Allocator) Keeps(ipam.Ask) (why string) {
	if a.e.cfg.Objects == nil {
		return "this agent has no store"
	}
	return ""
}
