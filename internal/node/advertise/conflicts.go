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
	// Cluster returns the current snapshot. The function and the snapshot may be nil: nothing is known then.
	Cluster func() *model.Cluster
	// FromPools reports that pods get addresses from blocks of pools, not from the nodes' podCIDRs.
	FromPools bool
	// Kubernetes is read for pods; nil where the snapshot has all of them.
	Kubernetes *kube.Store
}

// Check refuses an unmanaged address of a pod of this node that another node, or a pod there, uses.
func (o Conflicts) Check(ctx context.Context, addr netip.Addr, pod model.PodRef) error {
	if o.Cluster == nil {
		return nil
	}
	c := o.Cluster()
	if c == nil {
		return nil
	}
	taken := func(who string) error {
		return model.Errorf(model.CodeInUse, "choose another address", "address %s is %s", addr, who)
	}
	for _, b := range c.Blocks {
		if b.CIDR.Contains(addr) && b.Holder(addr) != c.Self && o.FromPools {
			return taken("in block " + b.CIDR.String() + " of node " + b.Node)
		}
	}
	for _, n := range c.Nodes {
		if n.Name == c.Self {
			continue
		}
		if mesh.HasAddr(n, addr) {
			return taken("an address of node " + n.Name)
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

// holder returns the pod of another node, other than the given one, that uses an unmanaged address and still exists.
func (o Conflicts) holder(
	ctx context.Context, c *model.Cluster, n model.Node, addr netip.Addr, but model.PodRef,
) (string, error) {
	for _, b := range n.Unmanaged {
		if b.Addr != addr || b.Pod == but.String() {
			continue
		}
		switch there, err := o.exists(ctx, c, b); {
		case err != nil:
			return "", model.Errorf(model.CodeTryAgain, "delete that pod, if it is still there",
				"address %s was taken by pod %s on node %s, which may still exist: %w", addr, b.Pod, n.Name, err)
		case there:
			return b.Pod, nil
		}
	}
	return "", nil
}

// exists reports whether a pod of another node still exists. It is read only if a pod here wants its address.
func (o Conflicts) exists(ctx context.Context, c *model.Cluster, b model.UnmanagedAddress) (bool, error) {
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
