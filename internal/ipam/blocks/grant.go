// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

// A single address that another node has and did not cede is taken by the controller's word where there is a controller: it writes into
// the block which node may take which address in the name of which claim, after it has seen for itself that the claim's pod is there.
// The store refuses the rest, so that a node's token is of no use for other nodes' addresses.

// grantLook is how often a grant is looked for that no watch told of.
const grantLook = time.Second

// ungranted is the error of a take that needs a grant of the controller.
type ungranted struct{ block model.AddressBlock }

func (*ungranted) Error() string { return "the controller has not granted it" }

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

// ungrant is what is granted of a block without what this node was granted of an address: it has it.
func (q *requests) ungrant(granted map[netip.Addr]string, a netip.Addr) map[netip.Addr]string {
	if node, _, _ := strings.Cut(granted[a], ForClaim); node != q.cfg.Node {
		return granted
	}
	return lacking(granted, a)
}

// podOf is the pod that is asked for, "namespace/name".
func podOf(ask ipam.Ask) string {
	return ipam.Arg(ask.Args, "K8S_POD_NAMESPACE") + "/" + ipam.Arg(ask.Args, "K8S_POD_NAME")
}

// granting waits for a grant.
type granting struct {
	deadline <-chan time.Time
}

// next asks for the grant the first time, and returns when it is to be looked for again. The error: it has not come.
func (g *granting) next(ctx context.Context, q *requests, changed <-chan struct{}, c addressClaim, a netip.Addr, block model.AddressBlock) error {
	if g.deadline == nil {
		g.deadline = q.cfg.After(q.cfg.Patience)
		_, err := q.requestGrant(ctx, c, a, block)
		return err // the next look sees what came meanwhile
	}
	select {
	case <-changed:
		return nil
	case <-q.cfg.After(grantLook):
		return nil
	case <-ctx.Done():
	case <-g.deadline:
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), request)
	defer cancel()
	answered, err := q.requestGrant(ctx, c, a, block)
	switch {
	case err != nil:
		return err
	case !answered:
		return model.Faultf(model.CodeTryAgain, "it is tried again; is the Deployment weft-controller of the manifests there, of this version, and does it run?",
			"%s: address %s is with node %q, and the controller, which alone lets this node take it, has not answered", claimWords(c.id), a, block.Holder(a))
	}
	return model.Faultf(model.CodeTryAgain, "the log of the Deployment weft-controller says why; it is tried again",
		"%s: address %s is with node %q, and the controller has not granted it to pod %s of this node", claimWords(c.id), a, block.Holder(a), c.pod)
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
