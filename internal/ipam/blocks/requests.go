// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/whereabouts"
	"github.com/weft-net/weft/internal/model"
)

// Where the controller is apart it alone writes pools: a node's token that could write them could take every address of the
// cluster. Agents ask it by objects of their own.

// NoControllerFile is a file of the agent's state directory. It says, as JSON, why nobody looks after pools, and is missing otherwise.
const NoControllerFile = "no-controller.json"

// granted is how often an agent looks whether its request was granted.
const granted = 100 * time.Millisecond

// requestRange asks the controller for a want's range, and waits until the pool has it.
func (q *requests) requestRange(ctx context.Context, p *pool, w want) (bool, error) {
	if err := q.requestPool(ctx, model.PoolRequest{Pool: p.name, CIDR: w.network, Addresses: count(w.spans), Network: w.alias}); err != nil {
		return false, err
	}
	const way = "it is tried again; is the Deployment weft-controller of the manifests there, and does it run?"
	deadline := q.cfg.After(q.cfg.Patience)
	for {
		select {
		case <-q.cfg.After(granted):
		case <-deadline:
			return false, model.Faultf(model.CodeTryAgain, way, "%s: the controller has not given pool %q the range %s yet", w.field, p.name, w.network)
		case <-ctx.Done():
			return false, model.Faultf(model.CodeTryAgain, way, "%s: waiting for the range %s of pool %q: %w", w.field, w.network, p.name, ctx.Err())
		}
		if err := q.registry.readPool(ctx, p); err != nil {
			return false, err
		}
		q.mem.mu.Lock()
		there := p.object.Version != "" && len(p.lacks(w)) == 0
		q.mem.mu.Unlock()
		if there {
			return true, nil
		}
	}
}

// requestPool writes a request of this node. One that is there already will do.
func (q *requests) requestPool(ctx context.Context, r model.PoolRequest) error {
	r.Node = q.cfg.Node
	o, err := store.AddressPoolRequestObject(r)
	if err != nil {
		return err
	}
	_, err = Bounded(ctx, func(ctx context.Context) (store.Object, error) {
		return q.cfg.Objects.Create(ctx, store.AddressPoolRequests(), o)
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return model.Faultf(model.CodeTryAgain, "install the definitions of deploy/crds.yaml of this version", "the controller cannot be asked for a pool: %w", err)
	case errors.Is(err, store.ErrExists):
		return nil
	case err != nil:
		return Unreachable("request for a pool", err)
	}
	return nil
}

// requestCalico has the controller follow Calico's pools where this node gives addresses of the cluster's network.
func (q *requests) requestCalico(ctx context.Context) error {
	q.mem.mu.Lock()
	due := q.cfg.Apart && !q.followed && (q.chooser.serving || len(q.chooser.cluster) > 0)
	q.mem.mu.Unlock()
	if !due {
		return nil
	}
	if err := q.requestPool(ctx, model.PoolRequest{}); err != nil {
		return err
	}
	q.mem.mu.Lock()
	q.followed = true
	q.mem.mu.Unlock()
	return nil
}

// Grant does what an agent asks for: the pool gets what it lacks of the range. Pools of the cluster's network are people's; a
// request for one is refused with an error of code CodeInvalidConf.
func Grant(ctx context.Context, objects store.Objects, r model.PoolRequest) error {
	kind := store.AddressPools()
	const tries = 10
	for range tries {
		o, err := Bounded(ctx, func(ctx context.Context) (store.Object, error) { return objects.Get(ctx, kind, kind.Key("", r.Pool)) })
		spec := model.AddressPool{Name: r.Pool}
		switch {
		case errors.Is(err, store.ErrNotFound):
			o = store.Object{}
		case err != nil:
			return Unreachable("pool "+r.Pool, err)
		default:
			if spec, err = o.AddressPool(); err != nil {
				return err
			}
		}
		if spec.OfCluster() {
			return ipam.Invalid("choose another network_name, or give the pool another name", "pool %q is one of the cluster's network: nothing is added for node %s", r.Pool, r.Node)
		}
		lacks := Missing(spec, r.CIDR)
		if len(lacks) == 0 {
			return nil
		}
		next, _, err := extended(ctx, objects, o, spec, lacks, r)
		if err != nil {
			return err
		}
		_, err = Bounded(ctx, func(ctx context.Context) (store.Object, error) {
			if o.Version == "" {
				return objects.Create(ctx, kind, next)
			}
			return objects.CompareAndSwap(ctx, kind, o.Version, next)
		})
		if err == nil || !errors.Is(err, store.ErrExists) && ignoreConflict(err) != nil {
			return err
		}
	}
	return model.Faultf(model.CodeTryAgain, "", "pool %q changes all the time", r.Pool)
}

// Missing are the parts of a range that a pool does not have.
func Missing(p model.AddressPool, network netip.Prefix) []netip.Prefix {
	var have []netip.Prefix
	for _, r := range p.Regions {
		have = append(have, r.CIDR)
	}
	return minus(network, have)
}

// extended is the pool with further regions, and with what whereabouts has given of them.
func extended(ctx context.Context, objects store.Objects, o store.Object, spec model.AddressPool, lacks []netip.Prefix, r model.PoolRequest) (store.Object, model.AddressPool, error) {
	for _, cidr := range lacks {
		spec.Regions = append(spec.Regions, model.AddressRegion{CIDR: cidr, BlockSize: model.BlockSize(cidr, r.Addresses)})
	}
	foreign, err := whereabouts.Read(ctx, ForeignLister(objects))
	if err != nil {
		return o, spec, fmt.Errorf("import: %w", err)
	}
	spec.Reserved = append(spec.Reserved, foreign.Reserved(r.Network, lacks)...)
	next, err := store.AddressPoolObject(o, spec)
	return next, spec, err
}

// FreeClaim takes addresses out of the claim of a virtual machine that no pool gives any more: the next pod of the machine gets others.
func FreeClaim(ctx context.Context, objects store.Objects, claim string) error {
	kind, key := claimPlace(ofAddressClaim + claim)
	o, err := Bounded(ctx, func(ctx context.Context) (store.Object, error) { return objects.Get(ctx, kind, key) })
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return Unreachable(claim, err)
	}
	all, err := Bounded(ctx, func(ctx context.Context) ([]store.Object, error) { return objects.List(ctx, store.AddressPools()) })
	if err != nil {
		return Unreachable("list of pools", err)
	}
	var pools []model.AddressPool
	for _, o := range all {
		p, err := o.AddressPool()
		if err != nil {
			return err // it may be the one
		}
		pools = append(pools, p)
	}
	pools = slices.DeleteFunc(model.Allocatable(pools), func(p model.AddressPool) bool { return !p.OfCluster() })
	given := func(text any) bool {
		word, _ := text.(string)
		a, err := netip.ParseAddr(word)
		return err == nil && slices.ContainsFunc(pools, func(p model.AddressPool) bool {
			return slices.ContainsFunc(p.Regions, func(r model.AddressRegion) bool { return r.CIDR.Contains(a.Unmap()) })
		})
	}
	next, err := o.Edited(func(fields map[string]any) error {
		spec, _ := fields["spec"].(map[string]any)
		status, _ := fields["status"].(map[string]any)
		if addrs, ok := status["addresses"].([]any); ok && spec["virtualMachine"] != nil {
			status["addresses"] = slices.DeleteFunc(slices.Clone(addrs), func(x any) bool { return !given(x) })
		}
		return nil
	})
	if err != nil || sameJSON(next.Raw, o.Raw) {
		return err
	}
	_, err = Bounded(ctx, func(ctx context.Context) (store.Object, error) {
		return objects.CompareAndSwapStatus(ctx, kind, o.Version, next)
	})
	if errors.Is(err, store.ErrConflict) {
		return model.Faultf(model.CodeTryAgain, "", "%s was changed meanwhile: %w", claim, err)
	}
	return ignoreConflict(err)
}

// requests are what this node asks the controller for, which alone may write pools and promises.
type requests struct {
	cfg      *Config
	mem      *memory
	chooser  *chooser
	registry *registry

	followed bool // the controller was asked to follow Calico's pools; under the memory's lock
}

// keepsAll makes sure that a claim loses no address by what is written into it: agents cannot take any out. Those of families that are
// not wanted now stay; for another one in the place of one that no pool gives the controller is asked.
func (q *requests) keepsAll(ctx context.Context, c addressClaim, words []string) ([]string, error) {
	if !q.cfg.Apart {
		return words, nil
	}
	is, err := c.object.AddressClaim()
	if err != nil {
		return nil, model.Faultf(model.CodeDecode, "put the object right", "%w", err)
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
			if err := q.requestPool(ctx, model.PoolRequest{Claim: strings.TrimPrefix(c.id, ofAddressClaim)}); err != nil {
				return nil, err
			}
			return nil, model.Faultf(model.CodeTryAgain, "the controller takes it out where no pool gives it any more; does the Deployment weft-controller run?",
				"%s still has address %s", c.id, old)
		}
	}
	return words, nil
}

// lies finds an address that a claim names, and that this node has for others or for nobody: any agent can write addresses into a claim.
// This node must not sign such a claim with its name, by which the controller lets other nodes take the claim's addresses from it.
func (q *requests) lies(c addressClaim) (netip.Addr, bool) {
	if !q.cfg.Apart {
		return netip.Addr{}, false
	}
	q.mem.mu.Lock()
	defer q.mem.mu.Unlock()
	for _, a := range AddressesOf(c.object) {
		for _, p := range q.mem.pools {
			if b := p.blockOf(a); b != nil && b.cidr.Contains(a) && b.stands == owned && !b.away[a] && p.held[a].claim != c.id {
				return a, true
			}
		}
	}
	return netip.Addr{}, false
}

// mayTake reports whether this node may take an address that is with another one: that one ceded it, or the controller granted it.
func (q *requests) mayTake(spec model.AddressBlock, a netip.Addr, claim string) bool {
	with, ceded := spec.Ceded[a]
	switch {
	case !q.cfg.Apart:
		return true
	case ceded && (with == "" || strings.HasPrefix(with, q.cfg.Node+"/")):
		return true
	case spec.Node == q.cfg.Node && (!ceded || strings.HasSuffix(with, "/")):
		return true // its own, or offered to a node that has not taken it
	}
	return spec.Granted[a] == q.cfg.Node+forWhom(claim)
}

// requestGrant asks the controller for an address of another node's block. New: there was no such request, or it was answered.
func (q *requests) requestGrant(ctx context.Context, c addressClaim, a netip.Addr, block model.AddressBlock) (fresh bool, err error) {
	name, is := strings.CutPrefix(c.id, ofAddressClaim)
	o, err := store.AddressPoolRequestObject(model.PoolRequest{
		Node: q.cfg.Node, Pool: block.Pool, CIDR: block.CIDR, Claim: name, IPAM: !is, Addr: a, Pod: c.pod,
	})
	if err != nil {
		return false, err
	}
	_, err = Bounded(ctx, func(ctx context.Context) (store.Object, error) {
		return q.cfg.Objects.Create(ctx, store.AddressPoolRequests(), o)
	})
	switch {
	case errors.Is(err, store.ErrExists):
		return false, nil
	case errors.Is(err, store.ErrNotFound):
		return false, model.Faultf(model.CodeTryAgain, "install the definitions of deploy/crds.yaml of this version", "the controller cannot be asked for address %s: %w", a, err)
	case err != nil:
		return false, Unreachable("request for address "+a.String(), err)
	}
	return true, nil
}

// ungrant is what is granted of a block without what this node was granted of an address: it has it.
func (q *requests) ungrant(granted map[netip.Addr]string, a netip.Addr) map[netip.Addr]string {
	if node, _, _ := strings.Cut(granted[a], ForClaim); node != q.cfg.Node {
		return granted
	}
	return lacking(granted, a)
}
