// SPDX-License-Identifier: Apache-2.0

// Package poolrequest is a node's side of a separate controller. That alone writes pools: a node's token that could write
// them could take every address of the cluster. Agents send it requests, as objects; package grants serves them.
package poolrequest

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/claims"
	"github.com/weft-net/weft/internal/model"
)

// NoControllerFile is a file in the agent's state directory. It exists, as JSON, while no controller manages pools, and
// says why.
const NoControllerFile = "no-controller.json"

// Config configures a Client.
type Config struct {
	// Objects is the datastore; Node is this node's name in it.
	Objects store.Objects
	Node    string
	// Separate: the controller runs as its own Deployment. Otherwise this node needs no grants.
	Separate bool
	// WaitLimit is how long a call waits for an answer of the controller.
	WaitLimit time.Duration
	After     func(time.Duration) <-chan time.Time
}

// Client sends requests to the controller, which alone may write pools and remove claimed addresses, and knows what
// this node may do without its grant.
type Client struct{ cfg Config }

// New returns a Client. It makes no request yet.
func New(cfg Config) *Client { return &Client{cfg} }

// Create creates a request of this node, without waiting for the answer. It is idempotent.
func (q *Client) Create(ctx context.Context, r model.PoolRequest) error {
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

// MayTake reports whether this node may take an address that another node has: that node lends it, or the controller
// granted it.
func (q *Client) MayTake(spec model.AddressBlock, a netip.Addr, claim string) bool {
	with, isLent := spec.Lent[a]
	switch {
	case !q.cfg.Separate:
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
func (q *Client) requestGrant(
	ctx context.Context, claim, pod string, a netip.Addr, block model.AddressBlock,
) (fresh bool, err error) {
	name, is := strings.CutPrefix(claim, claims.AddressClaimPrefix)
	o, err := store.AddressPoolRequestObject(model.PoolRequest{
		Node: q.cfg.Node, Pool: block.Pool, CIDR: block.CIDR, Claim: name, IPAM: !is, Addr: a, Pod: pod,
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

// Ungrant returns a block's grants without this node's grant of an address, which it now has.
func (q *Client) Ungrant(granted map[netip.Addr]string, a netip.Addr) map[netip.Addr]string {
	if node, _, _ := strings.Cut(granted[a], claims.EntrySeparator); node != q.cfg.Node {
		return granted
	}
	out := maps.Clone(granted)
	delete(out, a)
	return out
}
