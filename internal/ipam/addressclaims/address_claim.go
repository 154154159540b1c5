// SPDX-License-Identifier: Apache-2.0

// Package addressclaims reads and writes the claims by which addresses outlive the attachments of this node: IPAMClaims,
// AddressClaims, and those that weft creates for virtual machines. It does not allocate: it says which addresses a claim
// has, and records those that were allocated to it. Package claims has the formats, for readers of all nodes' claims.
package addressclaims

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

// Claim is the claim that an attachment uses; the zero value is none.
type Claim struct {
	// ID is the claim's ID, as in package claims.
	ID     string
	object store.Object
	// Pools are the pools that an AddressClaim names; Addrs the addresses that it has or requests.
	Pools []string
	Addrs []netip.Addr
	// VM is the virtual machine that owns the addresses, where weft created the claim.
	VM *model.VMRef
	// Pod is the pod ("namespace/name") that uses the claim on this node.
	Pod string
	// StoreSilent: the datastore does not answer, and the addresses are those that this node keeps for the claim.
	StoreSilent bool
}

// Claims reads and writes the claims of this node's attachments.
type Claims struct {
	cfg      Config
	requests *poolrequest.Client
}

// New returns the claims of a node. The requests are used only with a separate controller.
func New(cfg Config, requests *poolrequest.Client) *Claims {
	return &Claims{cfg, requests}
}

// Config configures Claims.
type Config struct {
	// Objects is the datastore, nil: there is none; Node is this node's name in it.
	Objects store.Objects
	Node    string
	// Allocated is what this node has allocated.
	Allocated Allocated
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

// Allocated is what a node has allocated to claims.
type Allocated interface {
	// KeptFor returns the addresses of a claim that no attachment of this node uses.
	KeptFor(claim string) []netip.Addr
	// NotAllocated returns one of some addresses that is in a block of this node, and not allocated to the claim; false:
	// there is none.
	NotAllocated(addrs []netip.Addr, claim string) (netip.Addr, bool)
}

// readClaim reads the AddressClaim that a pod names, before its addresses are chosen.
func (ac *Claims) readClaim(ctx context.Context, name string) (Claim, error) {
	if name == "" {
		return Claim{}, nil
	}
	c, err := ac.getClaim(ctx, name)
	if errors.Is(err, store.ErrNotFound) {
		return c, model.Errorf(model.CodeInvalidConf, "create it, or remove the annotation", "%s does not exist", c.ID)
	}
	return c, err
}

// getClaim is readClaim, but its error is store.ErrNotFound where there is no claim.
func (ac *Claims) getClaim(ctx context.Context, name string) (Claim, error) {
	c := Claim{ID: claims.AddressClaimPrefix + name}
	if ac.cfg.Objects == nil {
		return c, model.Errorf(model.CodeNotAvailable, "start the agent with a store, or with a cluster",
			"%s: this agent has no datastore", c.ID)
	}
	kind, key := claims.ObjectKey(c.ID)
	o, err := store.WithTimeout(ctx, func(ctx context.Context) (store.Object, error) {
		return ac.cfg.Objects.Get(ctx, kind, key)
	})
	if errors.Is(err, store.ErrNotFound) {
		return c, err
	}
	if err != nil {
		c.Addrs = ac.cfg.Allocated.KeptFor(c.ID)
		if c.StoreSilent = len(c.Addrs) > 0; c.StoreSilent {
			return c, nil // this node used the claim last, and no other node allocates these
		}
		return c, store.Unreachable(c.ID, err)
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
			return c, ipam.Invalid("an address, for example 10.1.0.5", "%s: %s[%d] %q is no address", c.ID, field, i, text)
		}
		c.Addrs = append(c.Addrs, a.Unmap())
	}
	c.object, c.Pools = o, in.Pools
	return c, nil
}

// writeAddressClaim writes addresses into the claim's status, before they are used.
func (ac *Claims) writeAddressClaim(ctx context.Context, c Claim, ips []model.IP) error {
	if c.ID == "" || c.StoreSilent {
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
			"%s names address %s, which this node has and did not allocate to it", c.ID, a)
	}
	next, err := c.object.Edited(store.WithClaimStatus(words, ac.cfg.Node))
	if err != nil || sameJSON(next.Raw, c.object.Raw) {
		return err
	}
	_, err = store.WithTimeout(ctx, func(ctx context.Context) (store.Object, error) {
		return ac.cfg.Objects.CompareAndSwapStatus(ctx, store.AddressClaims(), c.object.Version, next)
	})
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) {
		return model.Errorf(model.CodeTryAgain, "", "%s was changed meanwhile: %w", c.ID, err)
	}
	if err != nil {
		return store.Unreachable(c.ID, err)
	}
	return nil
}

// BindWants binds wants of specific addresses to the claim.
func (c Claim) BindWants(wants [][]poolconf.Want) {
	if c.ID == "" {
		return
	}
	for _, alternatives := range wants {
		for i := range alternatives {
			if w := &alternatives[i]; w.Addr.IsValid() {
				w.Claim, w.Field = c.ID, fmt.Sprintf("%s: spec.addresses", c.ID)
				if c.VM != nil {
					w.VM, w.Pod, w.Field = true, c.Pod, fmt.Sprintf("virtual machine %s", c.VM)
				}
			}
		}
	}
}

// ForCluster returns the claim of an attachment to the cluster's network: the one that the pod names, or its VM's, which
// it creates if needed.
func (ac *Claims) ForCluster(ctx context.Context, req ipam.Request) (Claim, error) {
	if req.PodRequest.Claim != "" {
		return ac.readClaim(ctx, req.PodRequest.Claim)
	}
	return ac.vmClaim(ctx, req)
}

// readIPAMClaim is readClaim for an IPAMClaim.
func (ac *Claims) readIPAMClaim(ctx context.Context, claim string) (Claim, error) {
	c := Claim{ID: claim}
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

// Stored returns the claim that owns an attachment's addresses; the zero value: the attachment owns them.
func (ac *Claims) Stored(ctx context.Context, req ipam.Request) (Claim, error) {
	name := req.PodRequest.Claim
	if name == "" {
		if claim := poolconf.ClaimReference(req.Conf); claim != "" {
			c, err := ac.readIPAMClaim(ctx, ipam.Arg(req.Args, "K8S_POD_NAMESPACE")+"/"+claim)
			c.Pod = podOf(req)
			return c, err
		}
		if req.VM == nil {
			return Claim{}, nil
		}
		name = req.VM.Namespace + "/" + req.VM.ClaimName(req.Network, req.IfName)
	}
	c, err := ac.getClaim(ctx, name)
	if errors.Is(err, store.ErrNotFound) {
		return Claim{}, nil // its addresses were never claimed
	}
	c.Pod = podOf(req)
	return c, err
}

// Verify checks that the claim exists and names the address.
func (ac *Claims) Verify(ctx context.Context, c Claim, a netip.Addr) error {
	o, err := store.WithTimeout(ctx, func(ctx context.Context) (store.Object, error) {
		kind, key := claims.ObjectKey(c.ID)
		return ac.cfg.Objects.Get(ctx, kind, key)
	})
	switch {
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return store.Unreachable(claims.Describe(c.ID), err)
	case err != nil || !claims.Names(o, a):
		return model.Errorf(model.CodeTryAgain, "", "%s does not name address %s any more", claims.Describe(c.ID), a)
	}
	return nil
}

// RecordUse writes this node into the journal and into the claim's status as the user of its addresses.
func (ac *Claims) RecordUse(ctx context.Context, c Claim) error {
	if err := ac.cfg.Save(); err != nil {
		return model.Errorf(model.CodeIO, "is the file system full or read-only?", "%w", err)
	}
	kind, key := claims.ObjectKey(c.ID)
	if kind != store.AddressClaims() {
		return nil // an IPAMClaim has no field for it
	}
	const tries = 4
	for range tries { // each try checks the claim's current addresses
		if a, lies := ac.falseAddress(c); lies {
			ac.cfg.Log.Warn("claim names an address of this node that was never allocated to it; its status.node is not set",
				"claim", c.ID, "address", a.String())
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
func (ac *Claims) keepAll(ctx context.Context, c Claim, words []string) ([]string, error) {
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
				model.PoolRequest{Claim: strings.TrimPrefix(c.ID, claims.AddressClaimPrefix)}); err != nil {
				return nil, err
			}
			return nil, model.Errorf(model.CodeTryAgain,
				"the controller removes it if no pool has it any more; does the Deployment weft-controller run?",
				"%s still has address %s", c.ID, old)
		}
	}
	return words, nil
}

// falseAddress returns an address that a claim names, and that this node has not allocated to it: any agent can write
// addresses into a claim. This node must not confirm such a claim, because the controller grants other nodes the
// addresses of confirmed claims.
func (ac *Claims) falseAddress(c Claim) (netip.Addr, bool) {
	if !ac.cfg.SeparateController {
		return netip.Addr{}, false
	}
	return ac.cfg.Allocated.NotAllocated(claims.Addresses(c.object), c.ID)
}

// podOf returns the pod of the request, "namespace/name".
func podOf(req ipam.Request) string {
	return ipam.Arg(req.Args, "K8S_POD_NAMESPACE") + "/" + ipam.Arg(req.Args, "K8S_POD_NAME")
}
