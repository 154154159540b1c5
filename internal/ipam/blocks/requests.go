// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/claims"
	"github.com/weft-net/weft/internal/model"
)

// Where the controller is apart it alone writes pools: a node's token that could write them could take every address of
// the cluster. Agents ask it by objects of their own.

// NoControllerFile is a file of the agent's state directory. It says, as JSON, why nobody looks after pools, and is
// missing otherwise.
const NoControllerFile = "no-controller.json"

// granted is how often an agent looks whether its request was granted.
const granted = 100 * time.Millisecond

// requestRange asks the controller for a want's range, and waits until the pool has it.
func (q *requests) requestRange(ctx context.Context, p *pool, w want) (bool, error) {
	if err := q.requestPool(ctx, model.PoolRequest{
		Pool: p.name, CIDR: w.network, Addresses: count(w.spans), Network: w.alias,
	}); err != nil {
		return false, err
	}
	const way = "it is tried again; is the Deployment weft-controller of the manifests there, and does it run?"
	deadline := q.cfg.After(q.cfg.Patience)
	for {
		select {
		case <-q.cfg.After(granted):
		case <-deadline:
			return false, model.Faultf(model.CodeTryAgain, way, "%s: the controller has not given pool %q the range %s yet",
				w.field, p.name, w.network)
		case <-ctx.Done():
			return false, model.Faultf(model.CodeTryAgain, way, "%s: waiting for the range %s of pool %q: %w", w.field,
				w.network, p.name, ctx.Err())
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
	_, err = store.Bounded(ctx, func(ctx context.Context) (store.Object, error) {
		return q.cfg.Objects.Create(ctx, store.AddressPoolRequests(), o)
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return model.Faultf(model.CodeTryAgain, "install the definitions of deploy/crds.yaml of this version",
			"the controller cannot be asked for a pool: %w", err)
	case errors.Is(err, store.ErrExists):
		return nil
	case err != nil:
		return store.Unreachable("request for a pool", err)
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

// requests are what this node asks the controller for, which alone may write pools and promises.
type requests struct {
	cfg      *Config
	mem      *memory
	chooser  *chooser
	registry *registry

	followed bool // the controller was asked to follow Calico's pools; under the memory's lock
}

// keepsAll makes sure that a claim loses no address by what is written into it: agents cannot take any out. Those of
// families that are not wanted now stay; for another one in the place of one that no pool gives the controller is
// asked.
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
			if err := q.requestPool(ctx, model.PoolRequest{Claim: strings.TrimPrefix(c.id, claims.OfAddressClaim)}); err != nil {
				return nil, err
			}
			return nil, model.Faultf(model.CodeTryAgain,
				"the controller takes it out where no pool gives it any more; does the Deployment weft-controller run?",
				"%s still has address %s", c.id, old)
		}
	}
	return words, nil
}

// lies finds an address that a claim names, and that this node has for others or for nobody: any agent can write
// addresses into a claim. This node must not sign such a claim with its name, by which the controller lets other nodes
// take the claim's addresses from it.
func (q *requests) lies(c addressClaim) (netip.Addr, bool) {
	if !q.cfg.Apart {
		return netip.Addr{}, false
	}
	q.mem.mu.Lock()
	defer q.mem.mu.Unlock()
	for _, a := range claims.Addresses(c.object) {
		for _, p := range q.mem.pools {
			if b := p.blockOf(a); b != nil && b.cidr.Contains(a) && b.stands == owned && !b.away[a] && p.held[a].claim != c.id {
				return a, true
			}
		}
	}
	return netip.Addr{}, false
}

// mayTake reports whether this node may take an address that is with another one: that one ceded it, or the controller
// granted it.
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
	return spec.Granted[a] == q.cfg.Node+claims.ForWhom(claim)
}

// requestGrant asks the controller for an address of another node's block. New: there was no such request, or it was
// answered.
func (q *requests) requestGrant(
	ctx context.Context, c addressClaim, a netip.Addr, block model.AddressBlock,
) (fresh bool, err error) {
	name, is := strings.CutPrefix(c.id, claims.OfAddressClaim)
	o, err := store.AddressPoolRequestObject(model.PoolRequest{
		Node: q.cfg.Node, Pool: block.Pool, CIDR: block.CIDR, Claim: name, IPAM: !is, Addr: a, Pod: c.pod,
	})
	if err != nil {
		return false, err
	}
	_, err = store.Bounded(ctx, func(ctx context.Context) (store.Object, error) {
		return q.cfg.Objects.Create(ctx, store.AddressPoolRequests(), o)
	})
	switch {
	case errors.Is(err, store.ErrExists):
		return false, nil
	case errors.Is(err, store.ErrNotFound):
		return false, model.Faultf(model.CodeTryAgain, "install the definitions of deploy/crds.yaml of this version",
			"the controller cannot be asked for address %s: %w", a, err)
	case err != nil:
		return false, store.Unreachable("request for address "+a.String(), err)
	}
	return true, nil
}

// ungrant is what is granted of a block without what this node was granted of an address: it has it.
func (q *requests) ungrant(granted map[netip.Addr]string, a netip.Addr) map[netip.Addr]string {
	if node, _, _ := strings.Cut(granted[a], claims.For); node != q.cfg.Node {
		return granted
	}
	return lacking(granted, a)
}
