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
	"github.com/weft-net/weft/internal/ipam/addrspan"
	"github.com/weft-net/weft/internal/ipam/claims"
	"github.com/weft-net/weft/internal/ipam/poolconf"
	"github.com/weft-net/weft/internal/model"
)

// A separate controller alone writes pools: a node's token that could write them could take every address of the
// cluster. Agents send it requests, as objects.

// NoControllerFile is a file in the agent's state directory. It exists, as JSON, while no controller manages pools, and
// says why.
const NoControllerFile = "no-controller.json"

// rangePoll is how often an agent checks whether its request was granted.
const rangePoll = 100 * time.Millisecond

// requestRange requests a want's range from the controller, and waits until the pool has it.
func (q *requests) requestRange(ctx context.Context, p *pool, w poolconf.Want) (bool, error) {
	if err := q.requestPool(ctx, model.PoolRequest{
		Pool: p.name, CIDR: w.Network, Addresses: addrspan.Count(w.Spans), Network: w.Alias,
	}); err != nil {
		return false, err
	}
	const way = "it is retried; does the Deployment weft-controller run?"
	deadline := q.cfg.After(q.cfg.WaitLimit)
	for {
		select {
		case <-q.cfg.After(rangePoll):
		case <-deadline:
			return false, model.Errorf(model.CodeTryAgain, way, "%s: the controller has not added range %[3]s to pool %[2]q yet",
				w.Field, p.name, w.Network)
		case <-ctx.Done():
			return false, model.Errorf(model.CodeTryAgain, way, "%s: waiting for the range %s of pool %q: %w", w.Field,
				w.Network, p.name, ctx.Err())
		}
		if err := q.registry.readPool(ctx, p); err != nil {
			return false, err
		}
		q.state.mu.Lock()
		there := p.object.Version != "" && len(p.lacks(w)) == 0
		q.state.mu.Unlock()
		if there {
			return true, nil
		}
	}
}

// requestPool creates a request of this node. It is idempotent.
func (q *requests) requestPool(ctx context.Context, r model.PoolRequest) error {
	r.Node = q.cfg.Node
	o, err := store.AddressPoolRequestObject(r)
	if err != nil {
		return err
	}
	_, err = store.WithTimeout(ctx, func(ctx context.Context) (store.Object, error) {
		return q.cfg.Objects.Create(ctx, store.AddressPoolRequests(), o)
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return model.Errorf(model.CodeTryAgain, "install the definitions of deploy/crds.yaml of this version",
			"a pool cannot be requested from the controller: %w", err)
	case errors.Is(err, store.ErrExists):
		return nil
	case err != nil:
		return store.Unreachable("request for a pool", err)
	}
	return nil
}

// requestCalico requests that the controller follow Calico's pools, if this node allocates addresses of the cluster's
// network.
func (q *requests) requestCalico(ctx context.Context) error {
	q.state.mu.Lock()
	due := q.cfg.SeparateController && !q.followed && (q.poolSelector.serving || len(q.poolSelector.cluster) > 0)
	q.state.mu.Unlock()
	if !due {
		return nil
	}
	if err := q.requestPool(ctx, model.PoolRequest{}); err != nil {
		return err
	}
	q.state.mu.Lock()
	q.followed = true
	q.state.mu.Unlock()
	return nil
}

// requests sends requests to the controller, which alone may write pools and remove claimed addresses.
type requests struct {
	cfg          *Config
	state        *nodeState
	poolSelector *poolSelector
	registry     *registry

	followed bool // requestCalico is done; protected by the state's mutex
}

// keepAll makes sure that a write to a claim removes no address: agents may not. Addresses of other families stay; to
// replace an address that no pool has any more, it requests the controller to remove it.
func (q *requests) keepAll(ctx context.Context, c addressClaim, words []string) ([]string, error) {
	if !q.cfg.SeparateController {
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
			if err := q.requestPool(ctx,
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
func (q *requests) falseAddress(c addressClaim) (netip.Addr, bool) {
	if !q.cfg.SeparateController {
		return netip.Addr{}, false
	}
	q.state.mu.Lock()
	defer q.state.mu.Unlock()
	for _, a := range claims.Addresses(c.object) {
		for _, p := range q.state.pools {
			if b := p.blockOf(a); b != nil && b.cidr.Contains(a) && b.state == owned && !b.lent[a] && p.held[a].claim != c.id {
				return a, true
			}
		}
	}
	return netip.Addr{}, false
}

// mayTake reports whether this node may take an address that another node has: that node lends it, or the controller
// granted it.
func (q *requests) mayTake(spec model.AddressBlock, a netip.Addr, claim string) bool {
	with, isLent := spec.Lent[a]
	switch {
	case !q.cfg.SeparateController:
		return true
	case isLent && (with == "" || strings.HasPrefix(with, q.cfg.Node+"/")):
		return true
	case spec.Node == q.cfg.Node && (!isLent || strings.HasSuffix(with, "/")):
		return true // its own, or offered to a node that has not taken it
	}
	return spec.Granted[a] == q.cfg.Node+claims.EntrySuffix(claim)
}

// requestGrant requests a grant of an address of another node's block from the controller. fresh: there was no such
// request, or it was answered.
func (q *requests) requestGrant(
	ctx context.Context, c addressClaim, a netip.Addr, block model.AddressBlock,
) (fresh bool, err error) {
	name, is := strings.CutPrefix(c.id, claims.AddressClaimPrefix)
	o, err := store.AddressPoolRequestObject(model.PoolRequest{
		Node: q.cfg.Node, Pool: block.Pool, CIDR: block.CIDR, Claim: name, IPAM: !is, Addr: a, Pod: c.pod,
	})
	if err != nil {
		return false, err
	}
	_, err = store.WithTimeout(ctx, func(ctx context.Context) (store.Object, error) {
		return q.cfg.Objects.Create(ctx, store.AddressPoolRequests(), o)
	})
	switch {
	case errors.Is(err, store.ErrExists):
		return false, nil
	case errors.Is(err, store.ErrNotFound):
		return false, model.Errorf(model.CodeTryAgain, "install the definitions of deploy/crds.yaml of this version",
			"address %s cannot be requested from the controller: %w", a, err)
	case err != nil:
		return false, store.Unreachable("request for address "+a.String(), err)
	}
	return true, nil
}

// ungrant returns a block's grants without this node's grant of an address, which it now has.
func (q *requests) ungrant(granted map[netip.Addr]string, a netip.Addr) map[netip.Addr]string {
	if node, _, _ := strings.Cut(granted[a], claims.EntrySeparator); node != q.cfg.Node {
		return granted
	}
	return withoutEntry(granted, a)
}
