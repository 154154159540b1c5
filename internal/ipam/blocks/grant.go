// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"net/netip"
	"time"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/claims"
	"github.com/weft-net/weft/internal/model"
)

// With a separate controller, a node needs its grant to take an address that another node has and does not lend: the
// controller writes into the block's object which node may take which address for which claim, after it has checked
// that the claim's pod is on that node. Admission rejects all else, so that the token of one node cannot take other
// nodes' addresses.

// grantPoll is how often a grant is checked for, in addition to the watch.
const grantPoll = time.Second

// ungranted is the error of a transfer that needs a grant of the controller.
type ungranted struct{ block model.AddressBlock }

func (*ungranted) Error() string { return "the controller has not granted it" }

// podOf returns the pod of the request, "namespace/name".
func podOf(req ipam.Request) string {
	return ipam.Arg(req.Args, "K8S_POD_NAMESPACE") + "/" + ipam.Arg(req.Args, "K8S_POD_NAME")
}

// granting waits for a grant.
type granting struct {
	deadline <-chan time.Time
}

// next requests the grant the first time, and returns when it should be checked for again. It returns an error if the
// grant has not come in time.
func (g *granting) next(
	ctx context.Context, q *requests, changed <-chan struct{}, c addressClaim, a netip.Addr, block model.AddressBlock,
) error {
	if g.deadline == nil {
		g.deadline = q.cfg.After(q.cfg.WaitLimit)
		_, err := q.requestGrant(ctx, c, a, block)
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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	answered, err := q.requestGrant(ctx, c, a, block)
	switch {
	case err != nil:
		return err
	case !answered:
		return model.Errorf(model.CodeTryAgain,
			"it is retried; does the Deployment weft-controller run, in this version?",
			"%s: address %s is on node %q, and the controller, whose grant this node needs, has not answered",
			claims.Describe(c.id), a, block.Holder(a))
	}
	return model.Errorf(model.CodeTryAgain, "it is retried; the log of the Deployment weft-controller says why",
		"%s: address %s is on node %q, and the controller has not granted it to pod %s of this node", claims.Describe(c.id), a,
		block.Holder(a), c.pod)
}
