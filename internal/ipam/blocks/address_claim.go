// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/claims"
	"github.com/weft-net/weft/internal/model"
)

// addressClaim is an AddressClaim that an attachment names; the zero value is none.
type addressClaim struct {
	id     string
	object store.Object
	pools  []string
	addrs  []netip.Addr
	// machine is the virtual machine that the addresses are promised to, where nobody has written the claim.
	machine *model.VMRef
	// pod is the pod ("namespace/name") that carries the claim here.
	pod string
	// silent: the store does not answer, and the addresses are those that this node keeps for the claim.
	silent bool
}

// addressClaims are the promises of addresses to machines and to whoever names a claim: IPAMClaims and AddressClaims.
type addressClaims struct {
	cfg      *Config
	mem      *memory
	journal  *journalFile
	requests *requests
}

// readClaim reads the AddressClaim that a pod names, before its addresses are chosen.
func (ac *addressClaims) readClaim(ctx context.Context, name string) (addressClaim, error) {
	if name == "" {
		return addressClaim{}, nil
	}
	c, err := ac.lookClaim(ctx, name)
	if errors.Is(err, store.ErrNotFound) {
		return c, model.Faultf(model.CodeInvalidConf, "make it, or take the annotation away", "%s does not exist", c.id)
	}
	return c, err
}

// lookClaim is readClaim for who knows what to do where there is none: the error is store.ErrNotFound then.
func (ac *addressClaims) lookClaim(ctx context.Context, name string) (addressClaim, error) {
	c := addressClaim{id: claims.OfAddressClaim + name}
	if ac.cfg.Objects == nil {
		return c, model.Faultf(model.CodeNotAvailable, "start the agent with a store, or with a cluster",
			"%s: this agent has no store", c.id)
	}
	kind, key := claims.Place(c.id)
	o, err := store.Bounded(ctx, func(ctx context.Context) (store.Object, error) {
		return ac.cfg.Objects.Get(ctx, kind, key)
	})
	if errors.Is(err, store.ErrNotFound) {
		return c, err
	}
	if err != nil {
		for _, addrs := range ac.mem.heldBy(func(h holder, _ netip.Addr) bool { return h == holder{claim: c.id} }, nil) {
			c.addrs = append(c.addrs, addrs...)
		}
		if c.silent = len(c.addrs) > 0; c.silent {
			return c, nil // it was here last, and nobody else gives these
		}
		return c, store.Unreachable(c.id, err)
	}
	in, err := o.AddressClaim()
	if err != nil {
		return c, model.Faultf(model.CodeDecode, "put the object right", "%w", err)
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

// writeClaim writes addresses into the claim's status, before anybody uses them.
func (ac *addressClaims) writeClaim(ctx context.Context, c addressClaim, ips []model.IP) error {
	if c.id == "" || c.silent {
		return nil
	}
	if err := ac.journal.save(); err != nil { // the address stays the claim's when the pod has gone
		return model.Faultf(model.CodeIO, "is the file system full or read-only?", "%w", err)
	}
	var words []string
	for _, ip := range ips {
		words = append(words, ip.Address.Addr().String())
	}
	words, err := ac.requests.keepsAll(ctx, c, words)
	if err != nil {
		return err
	}
	if a, lies := ac.requests.lies(c); lies {
		return model.Faultf(model.CodeTryAgain,
			"somebody has written it there: delete the claim, and weft makes it anew where it is a machine's",
			"%s names address %s, which this node has and has not given to it", c.id, a)
	}
	next, err := c.object.Edited(store.WithClaimStatus(words, ac.cfg.Node))
	if err != nil || sameJSON(next.Raw, c.object.Raw) {
		return err
	}
	_, err = store.Bounded(ctx, func(ctx context.Context) (store.Object, error) {
		return ac.cfg.Objects.CompareAndSwapStatus(ctx, store.AddressClaims(), c.object.Version, next)
	})
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) {
		return model.Faultf(model.CodeTryAgain, "", "%s was changed meanwhile: %w", c.id, err)
	}
	if err != nil {
		return store.Unreachable(c.id, err)
	}
	return nil
}

// forClaimed makes wants of certain addresses those of a claim.
func (c addressClaim) forClaimed(wants [][]want) {
	if c.id == "" {
		return
	}
	for _, alternatives := range wants {
		for i := range alternatives {
			if w := &alternatives[i]; w.addr.IsValid() {
				w.claim, w.field = c.id, fmt.Sprintf("%s: spec.addresses", c.id)
				if c.machine != nil {
					w.machine, w.pod, w.field = true, c.pod, fmt.Sprintf("virtual machine %s", c.machine)
				}
			}
		}
	}
}

// claimFor is the claim that an attachment's addresses are of: the one that the pod names, or its machine's.
func (ac *addressClaims) claimFor(ctx context.Context, ask ipam.Ask) (addressClaim, error) {
	if ask.Wishes.Claim != "" {
		return ac.readClaim(ctx, ask.Wishes.Claim)
	}
	return ac.machineClaim(ctx, ask)
}

// readIPAMClaim is readClaim for the other kind.
func (ac *addressClaims) readIPAMClaim(ctx context.Context, claim string) (addressClaim, error) {
	c := addressClaim{id: claim}
	if ac.cfg.Objects == nil {
		return c, model.Faultf(model.CodeNotAvailable, "start the agent with a store, or with a cluster",
			"%s: this agent has no store", claims.Words(claim))
	}
	o, err := store.Bounded(ctx, func(ctx context.Context) (store.Object, error) {
		return ac.cfg.Objects.Get(ctx, store.IPAMClaims(), claims.IPAMKey(claim))
	})
	if err != nil {
		return c, store.Unreachable(claims.Words(claim), err)
	}
	c.object = o
	return c, nil
}

// promised is the promise that an attachment's addresses are of; the zero value: they are its own.
func (ac *addressClaims) promised(ctx context.Context, ask ipam.Ask) (addressClaim, error) {
	name := ask.Wishes.Claim
	if name == "" {
		var o outer
		if json.Unmarshal(ask.Conf, &o) == nil && o.Args.CNI.Claim != "" {
			return ac.readIPAMClaim(ctx, ipam.Arg(ask.Args, "K8S_POD_NAMESPACE")+"/"+o.Args.CNI.Claim)
		}
		if ask.VM == nil {
			return addressClaim{}, nil
		}
		name = ask.VM.Namespace + "/" + ask.VM.Promise(ask.Network, ask.IfName)
	}
	c, err := ac.lookClaim(ctx, name)
	if errors.Is(err, store.ErrNotFound) {
		return addressClaim{}, nil // its addresses were never promised
	}
	return c, err
}

// stillPromised makes sure that the claim is there and names the address.
func (ac *addressClaims) stillPromised(ctx context.Context, c addressClaim, a netip.Addr) error {
	o, err := store.Bounded(ctx, func(ctx context.Context) (store.Object, error) {
		kind, key := claims.Place(c.id)
		return ac.cfg.Objects.Get(ctx, kind, key)
	})
	switch {
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return store.Unreachable(claims.Words(c.id), err)
	case err != nil || !claims.Says(o, a):
		return model.Faultf(model.CodeTryAgain, "", "%s does not name address %s any more", claims.Words(c.id), a)
	}
	return nil
}

// saveUsed remembers that a claim's addresses are this node's, here and in the claim.
func (ac *addressClaims) saveUsed(ctx context.Context, c addressClaim) error {
	if err := ac.journal.save(); err != nil {
		return model.Faultf(model.CodeIO, "is the file system full or read-only?", "%w", err)
	}
	kind, key := claims.Place(c.id)
	if kind != store.AddressClaims() {
		return nil // there is no word for it
	}
	const tries = 4
	for range tries { // each of them looks at what the claim says by now
		if a, lies := ac.requests.lies(c); lies {
			ac.cfg.Log.Warn("claim names an address of this node that was never given to it: it is not said to be used here",
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
		_, err = store.Bounded(ctx, func(ctx context.Context) (store.Object, error) {
			return ac.cfg.Objects.CompareAndSwapStatus(ctx, kind, c.object.Version, next)
		})
		if !errors.Is(err, store.ErrConflict) {
			return store.IgnoreConflict(err) // the addresses are here, whatever it says
		}
		if c.object, err = ac.cfg.Objects.Get(ctx, kind, key); err != nil {
			return store.IgnoreConflict(err)
		}
	}
	return nil
}
