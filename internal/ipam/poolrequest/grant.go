// SPDX-License-Identifier: Apache-2.0

package poolrequest

import (
	"context"
	"net/netip"
	"time"

	"github.com/weft-net/weft/internal/ipam/claims"
	"github.com/weft-net/weft/internal/model"
)

// With a separate controller, a node needs its grant to take an address that another node has and does not lend: the
// controller writes into the block's object which node may take which address for which claim, after it has checked
// that the claim's pod is on that node. Admission rejects all else, so that the token of one node cannot take other
// nodes' addresses.

// grantPoll is how often a grant is checked for, in addition to the watch.
const grantPoll = time.Second

// answerTimeout is how long the last check for an answer may take.
const answerTimeout = 5 * time.Second

// Grant is a request for, and the wait for, the grant of an address of a claim to a pod of this node.
type Grant struct {
	client     *Client
	claim, pod string
	addr       netip.Addr
	deadline   <-chan time.Time
}

// Grant returns a Grant of an address of a claim, by the claim's ID, to a pod ("namespace/name"). It requests nothing yet.
func (q *Client) Grant(claim, pod string, a netip.Addr) *Grant {
	return &Grant{client: q, claim: claim, pod: pod, addr: a}
}

// Next requests the grant the first time, and returns when it should be checked for again: after changed, which is
// closed when the pool changes, or a while. It returns an error if the grant has not come in time.
func (g *Grant) Next(ctx context.Context, changed <-chan struct{}, block model.AddressBlock) error {
	q, a := g.client, g.addr
	if g.deadline == nil {
		g.deadline = q.cfg.After(q.cfg.WaitLimit)
		_, err := q.requestGrant(ctx, g.claim, g.pod, a, block)
		return err // the next check sees what came meanwhile
	}
	select {
	case <-changed:
		return nil
	case <-q.cfg.After(grantPoll):
		return nil
	case <-ctx.Done():
	case <-g.deadline:
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
	defer cancel()
	answered, err := q.requestGrant(ctx, g.claim, g.pod, a, block)
	switch {
	case err != nil:
		return err
	case !answered:
		return model.Errorf(model.CodeTryAgain,
			"it is retried; does the Deployment weft-controller run, in this version?",
			"%s: address %s is on node %q, and the controller, whose grant this node needs, has not answered",
			claims.Describe(g.claim), a, block.Holder(a))
	}
	return model.Errorf(model.CodeTryAgain, "it is retried; the log of the Deployment weft-controller says why",
		"%s: address %s is on node %q, and the controller has not granted it to pod %s of this node", claims.Describe(g.claim), a,
		block.Holder(a), g.pod)
}
