// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/claims"
	"github.com/weft-net/weft/internal/ipam/poolconf"
	"github.com/weft-net/weft/internal/ipam/poolrequest"
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
	cfg      claimsConfig
	requests *poolrequest.Client
}

// newClaims returns the claims of a node. The requests are used only with a separate controller.
func newClaims(cfg claimsConfig, requests *poolrequest.Client) *addressClaims {
	return &addressClaims{cfg, requests}
}

// claimsConfig configures an addressClaims.
type claimsConfig struct {
	// Objects is the datastore, nil: there is none; Node is this node's name in it.
	Objects store.Objects
	Node    string
	// Allocated is what this node has allocated.
	Allocated allocated
	// Save records the claims of addresses on disk, so that no later agent allocates them to others.
	Save func() error
	// VMsKnown: Objects has every virtual machine. Then no claim is created for a VM that has no object and that only a
	// pod names: nothing would ever delete that claim.
	VMsKnown bool
	// SeparateController: the controller runs as its own Deployment. It alone deletes claims, and removes addresses from
	// them.
	SeparateController bool
	Log                *slog.Logger
}

// allocated is what a node has allocated to claims.
type allocated interface {
	// KeptFor returns the addresses of a claim that no attachment of this node uses.
	KeptFor(claim string) []netip.Addr
	// NotAllocated returns one of some addresses that is in a block of this node, and not allocated to the claim; false:
	// there is none.
	NotAllocated(addrs []netip.Addr, claim string) (netip.Addr, bool)
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
		c.addrs = ac.cfg.Allocated.KeptFor(c.id)
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
	if err := ac.cfg.Save(); err != nil { // the claim keeps the address when the pod is deleted
		return model.Errorf(model.CodeIO, "is the file system full or read-only?", "%w", err)
	}
	var words []string
	for _, ip := range ips {
		words = append(words, ip.Address.Addr().String())
	}
	words, err := ac.keepAll(ctx, c, words)
	if err != nil {
		return err
	}
	if a, lies := ac.falseAddress(c); lies {
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
			c, err := ac.readIPAMClaim(ctx, ipam.Arg(req.Args, "K8S_POD_NAMESPACE")+"/"+claim)
			c.pod = podOf(req)
			return c, err
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
	c.pod = podOf(req)
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
	if err := ac.cfg.Save(); err != nil {
		return model.Errorf(model.CodeIO, "is the file system full or read-only?", "%w", err)
	}
	kind, key := claims.ObjectKey(c.id)
	if kind != store.AddressClaims() {
		return nil // an IPAMClaim has no field for it
	}
	const tries = 4
	for range tries { // each try checks the claim's current addresses
		if a, lies := ac.falseAddress(c); lies {
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

// keepAll makes sure that a write to a claim removes no address: agents may not. Addresses of other families stay; to
// replace an address that no pool has any more, it requests the controller to remove it.
func (ac *addressClaims) keepAll(ctx context.Context, c addressClaim, words []string) ([]string, error) {
	if !ac.cfg.SeparateController {
		return words, nil
	}
	is, err := c.object.AddressClaim()
	if err != nil {
		return nil, model.Errorf(model.CodeDecode, "correct the object", "%w", err)
	}
	families := map[bool]bool{}
	for _, text := range words {
		families[strings.Contains(text, ":")] = true
	}
	for _, old := range is.Addresses {
		switch {
		case slices.Contains(words, old):
		case !families[strings.Contains(old, ":")]:
			words = append(words, old)
		default:
			if err := ac.requests.Create(ctx,
				model.PoolRequest{Claim: strings.TrimPrefix(c.id, claims.AddressClaimPrefix)}); err != nil {
				return nil, err
			}
			return nil, model.Errorf(model.CodeTryAgain,
				"the controller removes it if no pool has it any more; does the Deployment weft-controller run?",
				"%s still has address %s", c.id, old)
		}
	}
	return words, nil
}

// falseAddress returns an address that a claim names, and that this node has not allocated to it: any agent can write
// addresses into a claim. This node must not confirm such a claim, because the controller grants other nodes the
// addresses of confirmed claims.
func (ac *addressClaims) falseAddress(c addressClaim) (netip.Addr, bool) {
	if !ac.cfg.SeparateController {
		return netip.Addr{}, false
	}
	return ac.cfg.Allocated.NotAllocated(claims.Addresses(c.object), c.id)
}

// podOf returns the pod of the request, "namespace/name".
func podOf(req ipam.Request) string {
	return ipam.Arg(req.Args, "K8S_POD_NAMESPACE") + "/" + ipam.Arg(req.Args, "K8S_POD_NAME")
}
