// SPDX-License-Identifier: Apache-2.0

package advertise

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/kube"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// Conflicts finds addresses that are in use on other nodes.
type Conflicts struct {
	// Cluster is the current snapshot. It, and what it returns, may be nil: nothing is known then.
	Cluster func() *model.Cluster
	// FromPools reports that pods are numbered from blocks of pools, and not from the nodes' podCIDRs.
	FromPools bool
	// Kubernetes is asked for pods; nil where the snapshot has all of them.
	Kubernetes *kube.Store
}

// Check refuses an address that a pod of this node brings along where another node, or a pod there, has it.
func (o Conflicts) Check(ctx context.Context, addr netip.Addr, pod model.PodRef) error {
	if o.Cluster == nil {
		return nil
	}
	c := o.Cluster()
	if c == nil {
		return nil
	}
	taken := func(who string) error {
		return model.Faultf(model.CodeTaken, "choose another address", "address %s is %s", addr, who)
	}
	for _, b := range c.Blocks {
		if b.CIDR.Contains(addr) && b.Holder(addr) != c.Self && o.FromPools {
			return taken("in the block " + b.CIDR.String() + " of node " + b.Node)
		}
	}
	for _, n := range c.Nodes {
		if n.Name == c.Self {
			continue
		}
		if mesh.Has(n, addr) {
			return taken("that of node " + n.Name)
		}
		for _, p := range n.PodCIDRs {
			if p.Contains(addr) && !o.FromPools {
				return taken("in the podCIDR " + p.String() + " of node " + n.Name)
			}
		}
		holder, err := o.holder(ctx, c, n, addr, pod)
		if err != nil {
			return err
		}
		if holder != "" {
			return taken("taken by pod " + holder + " on node " + n.Name)
		}
	}
	return nil
}

// holder is the pod of another node that has brought an address along and is still there, if it is another one than
// that.
func (o Conflicts) holder(
	ctx context.Context, c *model.Cluster, n model.Node, addr netip.Addr, but model.PodRef,
) (string, error) {
	for _, b := range n.Brought {
		if b.Addr != addr || b.Pod == but.String() {
			continue
		}
		switch there, err := o.exists(ctx, c, b); {
		case err != nil:
			return "", model.Faultf(model.CodeTryAgain, "delete that pod, if it is still there",
				"address %s was taken by pod %s on node %s, and whether it is there is not known: %w", addr, b.Pod, n.Name, err)
		case there:
			return b.Pod, nil
		}
	}
	return "", nil
}

// exists reports whether a pod of another node still exists. Only who wants its address asks.
func (o Conflicts) exists(ctx context.Context, c *model.Cluster, b model.Brought) (bool, error) {
	namespace, name, _ := strings.Cut(b.Pod, "/")
	if o.Kubernetes == nil {
		return slices.ContainsFunc(c.Pods, func(p model.Pod) bool {
			return p.Namespace == namespace && p.Name == name && (b.UID == "" || p.UID == b.UID)
		}), nil
	}
	_, err := o.Kubernetes.Pod(ctx, model.PodRef{Namespace: namespace, Name: name, UID: b.UID})
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}
