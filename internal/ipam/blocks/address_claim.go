// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

// Two kinds of objects keep addresses over pods: IPAMClaims, for networks that a pod asks for, and AddressClaims, for the
// cluster's network. In a claim's text the second have this before their name.
const ofAddressClaim = "AddressClaim "

// claimPlace is where the object of a claim is.
func claimPlace(claim string) (store.Kind, store.Key) {
	if name, is := strings.CutPrefix(claim, ofAddressClaim); is {
		namespace, name, _ := strings.Cut(name, "/")
		return store.AddressClaims(), store.AddressClaims().Key(namespace, name)
	}
	return store.IPAMClaims(), claimKey(claim)
}

// claimWords names a claim for people.
func claimWords(claim string) string {
	if strings.HasPrefix(claim, ofAddressClaim) {
		return claim
	}
	return "IPAMClaim " + claim
}

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
	c := addressClaim{id: ofAddressClaim + name}
	if ac.cfg.Objects == nil {
		return c, model.Faultf(model.CodeNotAvailable, "start the agent with a store, or with a cluster", "%s: this agent has no store", c.id)
	}
	kind, key := claimPlace(c.id)
	o, err := Bounded(ctx, func(ctx context.Context) (store.Object, error) { return ac.cfg.Objects.Get(ctx, kind, key) })
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
		return c, Unreachable(c.id, err)
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

// wishes are an attachment's with what its claim says.
func (ch *chooser) claimWishes(c addressClaim, w model.AddressWishes) (model.AddressWishes, error) {
	if c.id == "" {
		return w, nil
	}
	if len(w.Addrs) > 0 {
		return w, ipam.Invalid("leave one out", "%s and certain addresses exclude each other", c.id)
	}
	if w.Addrs = c.addrs; len(w.Addrs) > 0 || len(c.pools) == 0 {
		return w, nil
	}
	w.Pools4, w.Pools6 = nil, nil
	ch.mem.mu.Lock()
	defer ch.mem.mu.Unlock()
	all := ch.mem.catalog.all()
	for _, name := range c.pools {
		i := slices.IndexFunc(all, func(p model.AddressPool) bool { return called(p, name) })
		if i < 0 {
			return w, ipam.Invalid("name a pool of the cluster's network", "%s: spec.pools: there is no pool %q", c.id, name)
		}
		for _, v6 := range []bool{false, true} {
			if !slices.ContainsFunc(all[i].Regions, func(r model.AddressRegion) bool { return r.CIDR.Addr().Is6() == v6 }) {
				continue
			}
			if v6 {
				w.Pools6 = append(w.Pools6, name)
			} else {
				w.Pools4 = append(w.Pools4, name)
			}
		}
	}
	return w, nil
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
		return model.Faultf(model.CodeTryAgain, "somebody has written it there: delete the claim, and weft makes it anew where it is a machine's",
			"%s names address %s, which this node has and has not given to it", c.id, a)
	}
	next, err := c.object.Edited(store.WithClaimStatus(words, ac.cfg.Node))
	if err != nil || sameJSON(next.Raw, c.object.Raw) {
		return err
	}
	_, err = Bounded(ctx, func(ctx context.Context) (store.Object, error) {
		return ac.cfg.Objects.CompareAndSwapStatus(ctx, store.AddressClaims(), c.object.Version, next)
	})
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) {
		return model.Faultf(model.CodeTryAgain, "", "%s was changed meanwhile: %w", c.id, err)
	}
	if err != nil {
		return Unreachable(c.id, err)
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
