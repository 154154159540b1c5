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

// A single address that another node has and did not cede is taken by the controller's word where there is a
// controller: it writes into the block which node may take which address in the name of which claim, after it has seen
// for itself that the claim's pod is there. The store refuses the rest, so that a node's token is of no use for other
// nodes' addresses.

// grantLook is how often a grant is looked for that no watch told of.
const grantLook = time.Second

// ungranted is the error of a take that needs a grant of the controller.
type ungranted struct{ block model.AddressBlock }

func (*ungranted) Error() string { return "the controller has not granted it" }

// podOf is the pod that is asked for, "namespace/name".
func podOf(ask ipam.Ask) string {
	return ipam.Arg(ask.Args, "K8S_POD_NAMESPACE") + "/" + ipam.Arg(ask.Args, "K8S_POD_NAME")
}

// granting waits for a grant.
type granting struct {
	deadline <-chan time.Time
}

// next asks for the grant the first time, and returns when it is to be looked for again. The error: it has not come.
func (g *granting) next(
	ctx context.Context, q *requests, changed <-chan struct{}, c addressClaim, a netip.Addr, block model.AddressBlock,
) error {
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
		return model.Faultf(model.CodeTryAgain,
			"it is tried again; is the Deployment weft-controller of the manifests there, of this version, and does it run?",
			"%s: address %s is with node %q, and the controller, which alone lets this node take it, has not answered",
			claims.Words(c.id), a, block.Holder(a))
	}
	return model.Faultf(model.CodeTryAgain, "the log of the Deployment weft-controller says why; it is tried again",
		"%s: address %s is with node %q, and the controller has not granted it to pod %s of this node", claims.Words(c.id), a,
		block.Holder(a), c.pod)
}
