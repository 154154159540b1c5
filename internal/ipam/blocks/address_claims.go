// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/claims"
	"github.com/weft-net/weft/internal/ipam/poolconf"
	"github.com/weft-net/weft/internal/model"
)

// addressClaim is the claim that an attachment uses; the zero value is none.
type addressClaim struct {
	id     string
	object store.Object
	pools  []string
	addrs  []netip.Addr
	// vm is the virtual machine that owns the addresses, where weft created the claim.
	vm *model.VMRef
	// pod is the pod ("namespace/name") that uses the claim on this node.
	pod string
	// storeSilent: the datastore does not answer, and the addresses are those that this node keeps for the claim.
	storeSilent bool
}

// addressClaims reads and writes claims of addresses, which outlive attachments: IPAMClaims and AddressClaims.
type addressClaims struct {
	cfg      *Config
	state    *nodeState
	journal  *journalFile
	requests *requests
}

// readClaim reads the AddressClaim that a pod names, before its addresses are chosen.
func (ac *addressClaims) readClaim(ctx context.Context, name string) (addressClaim, error) {
	if name == "" {
		return addressClaim{}, nil
	}
	c, err := ac.getClaim(ctx, name)
	if errors.Is(err, store.ErrNotFound) {
		return c, model.Errorf(model.CodeInvalidConf, "create it, or remove the annotation", "%s does not exist", c.id)
	}
	return c, err
}

// getClaim is readClaim, but its error is store.ErrNotFound where there is no claim.
func (ac *addressClaims) getClaim(ctx context.Context, name string) (addressClaim, error) {
	c := addressClaim{id: claims.AddressClaimPrefix + name}
	if ac.cfg.Objects == nil {
		return c, model.Errorf(model.CodeNotAvailable, "start the agent with a store, or with a cluster",
			"%s: this agent has no datastore", c.id)
	}
	kind, key := claims.ObjectKey(c.id)
	o, err := store.WithTimeout(ctx, func(ctx context.Context) (store.Object, error) {
		return ac.cfg.Objects.Get(ctx, kind, key)
	})
	if errors.Is(err, store.ErrNotFound) {
		return c, err
	}
	if err != nil {
		for _, addrs := range ac.state.heldBy(func(h holder, _ netip.Addr) bool { return h == holder{claim: c.id} }, nil) {
			c.addrs = append(c.addrs, addrs...)
		}
		if c.storeSilent = len(c.addrs) > 0; c.storeSilent {
			return c, nil // this node used the claim last, and no other node allocates these
		}
		return c, store.Unreachable(c.id, err)
	}
	in, err := o.AddressClaim()
	if err != nil {
		return c, model.Errorf(model.CodeDecode, "correct the object", "%w", err)
	}
	texts, field := in.Addresses, "status.addresses"
	if len(texts) == 0 {
		texts, field = in.Requested, "spec.addresses"
	}
	for i, text := range texts {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			return c, ipam.Invalid("an address, for example 10.1.0.5", "%s: %s[%d] %q is no address", c.id, field, i, text)
		}
		c.addrs = append(c.addrs, a.Unmap())
	}
	c.object, c.pools = o, in.Pools
	return c, nil
}

// writeClaim writes addresses into the claim's status, before they are used.
func (ac *addressClaims) writeClaim(ctx context.Context, c addressClaim, ips []model.IP) error {
	if c.id == "" || c.storeSilent {
		return nil
	}
	if err := ac.journal.save(); err != nil { // the claim keeps the address when the pod is deleted
		return model.Errorf(model.CodeIO, "is the file system full or read-only?", "%w", err)
	}
	var words []string
	for _, ip := range ips {
		words = append(words, ip.Address.Addr().String())
	}
	words, err := ac.requests.keepAll(ctx, c, words)
	if err != nil {
		return err
	}
	if a, lies := ac.requests.falseAddress(c); lies {
		return model.Errorf(model.CodeTryAgain,
			"another client wrote it there: delete the claim; weft creates the claim of a VM again",
			"%s names address %s, which this node has and did not allocate to it", c.id, a)
	}
	next, err := c.object.Edited(store.WithClaimStatus(words, ac.cfg.Node))
	if err != nil || sameJSON(next.Raw, c.object.Raw) {
		return err
	}
	_, err = store.WithTimeout(ctx, func(ctx context.Context) (store.Object, error) {
		return ac.cfg.Objects.CompareAndSwapStatus(ctx, store.AddressClaims(), c.object.Version, next)
	})
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) {
		return model.Errorf(model.CodeTryAgain, "", "%s was changed meanwhile: %w", c.id, err)
	}
	if err != nil {
		return store.Unreachable(c.id, err)
	}
	return nil
}

// bindWants binds wants of specific addresses to the claim.
func (c addressClaim) bindWants(wants [][]poolconf.Want) {
	if c.id == "" {
		return
	}
	for _, alternatives := range wants {
		for i := range alternatives {
			if w := &alternatives[i]; w.Addr.IsValid() {
				w.Claim, w.Field = c.id, fmt.Sprintf("%s: spec.addresses", c.id)
				if c.vm != nil {
					w.VM, w.Pod, w.Field = true, c.pod, fmt.Sprintf("virtual machine %s", c.vm)
				}
			}
		}
	}
}

// claimFor returns the claim of an attachment: the one that the pod names, or its VM's.
func (ac *addressClaims) claimFor(ctx context.Context, req ipam.Request) (addressClaim, error) {
	if req.PodRequest.Claim != "" {
		return ac.readClaim(ctx, req.PodRequest.Claim)
	}
	return ac.vmClaim(ctx, req)
}

// readIPAMClaim is readClaim for an IPAMClaim.
func (ac *addressClaims) readIPAMClaim(ctx context.Context, claim string) (addressClaim, error) {
	c := addressClaim{id: claim}
	if ac.cfg.Objects == nil {
		return c, model.Errorf(model.CodeNotAvailable, "start the agent with a store, or with a cluster",
			"%s: this agent has no datastore", claims.Describe(claim))
	}
	o, err := store.WithTimeout(ctx, func(ctx context.Context) (store.Object, error) {
		return ac.cfg.Objects.Get(ctx, store.IPAMClaims(), claims.IPAMKey(claim))
	})
	if err != nil {
		return c, store.Unreachable(claims.Describe(claim), err)
	}
	c.object = o
	return c, nil
}

// storedClaim returns the claim that owns an attachment's addresses; the zero value: the attachment owns them.
func (ac *addressClaims) storedClaim(ctx context.Context, req ipam.Request) (addressClaim, error) {
	name := req.PodRequest.Claim
	if name == "" {
		if claim := poolconf.ClaimReference(req.Conf); claim != "" {
			return ac.readIPAMClaim(ctx, ipam.Arg(req.Args, "K8S_POD_NAMESPACE")+"/"+claim)
		}
		if req.VM == nil {
			return addressClaim{}, nil
		}
		name = req.VM.Namespace + "/" + req.VM.ClaimName(req.Network, req.IfName)
	}
	c, err := ac.getClaim(ctx, name)
	if errors.Is(err, store.ErrNotFound) {
		return addressClaim{}, nil // its addresses were never claimed
	}
	return c, err
}

// verifyClaim checks that the claim exists and names the address.
func (ac *addressClaims) verifyClaim(ctx context.Context, c addressClaim, a netip.Addr) error {
	o, err := store.WithTimeout(ctx, func(ctx context.Context) (store.Object, error) {
		kind, key := claims.ObjectKey(c.id)
		return ac.cfg.Objects.Get(ctx, kind, key)
	})
	switch {
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return store.Unreachable(claims.Describe(c.id), err)
	case err != nil || !claims.Names(o, a):
		return model.Errorf(model.CodeTryAgain, "", "%s does not name address %s any more", claims.Describe(c.id), a)
	}
	return nil
}

// recordUse writes this node into the journal and into the claim's status as the user of its addresses.
func (ac *addressClaims) recordUse(ctx context.Context, c addressClaim) error {
	if err := ac.journal.save(); err != nil {
		return model.Errorf(model.CodeIO, "is the file system full or read-only?", "%w", err)
	}
	kind, key := claims.ObjectKey(c.id)
	if kind != store.AddressClaims() {
		return nil // an IPAMClaim has no field for it
	}
	const tries = 4
	for range tries { // each try checks the claim's current addresses
		if a, lies := ac.requests.falseAddress(c); lies {
			ac.cfg.Log.Warn("claim names an address of this node that was never allocated to it; its status.node is not set",
				"claim", c.id, "address", a.String())
			return nil
		}
		next, err := c.object.Edited(func(fields map[string]any) error {
			if status, ok := fields["status"].(map[string]any); ok {
				status["node"] = ac.cfg.Node
			}
			return nil
		})
		if err != nil || sameJSON(next.Raw, c.object.Raw) {
			return err
		}
		_, err = store.WithTimeout(ctx, func(ctx context.Context) (store.Object, error) {
			return ac.cfg.Objects.CompareAndSwapStatus(ctx, kind, c.object.Version, next)
		})
		if !errors.Is(err, store.ErrConflict) {
			return store.IgnoreConflict(err) // the addresses are here in any case
		}
		if c.object, err = ac.cfg.Objects.Get(ctx, kind, key); err != nil {
			return store.IgnoreConflict(err)
		}
	}
	return nil
}
