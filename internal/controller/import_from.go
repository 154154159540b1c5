// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/weft-net/weft/internal/calico"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// ifName is the interface of a pod's default network in Calico and host-local.
const ifName = "eth0"

// PlanCalico plans an import from Calico: its pools, the addresses that are allocated in its blocks, and these blocks.
// An invalid object is an error. random is the source of the claims' numbers.
func PlanCalico(ctx context.Context, objects store.Objects, random io.Reader) (Import, error) {
	im, err := newImporter(ctx, objects, random)
	if err != nil {
		return Import{}, err
	}
	c, err := readCalico(ctx, objects)
	if err != nil {
		return Import{}, err
	}
	if len(c.problems) > 0 {
		return Import{}, c.problems[0]
	}
	return im.planCalico(ctx, objects, c)
}

func (im *importer) planCalico(ctx context.Context, objects store.Objects, c calicoState) (Import, error) {
	for _, p := range c.pools {
		if _, there := im.state.pools[p.Name]; !there && !p.Deleted {
			im.pools[p.Name] = &PoolImport{Pool: p.Name, New: true, Regions: p.Regions, spec: p, from: c.kinds[p.Name]}
		}
	}
	seen := map[netip.Prefix]bool{}
	for _, g := range calico.Groups() {
		all, err := list(ctx, objects, g.Blocks)
		if err != nil {
			return Import{}, err
		}
		for _, o := range all {
			b, err := calico.Allocations(o)
			if err != nil {
				return Import{}, err
			}
			if seen[b.CIDR] {
				continue // read from the other API group already
			}
			seen[b.CIDR] = true
			for _, given := range b.Allocations {
				if err := im.importAllocation(o.Key.String(), b, given); err != nil {
					return Import{}, err
				}
			}
		}
	}
	return im.finish(), nil
}

// createMirrored creates missing mirrors of Calico's pools. The addresses that Calico has allocated are reserved in the
// same write, so that no address is allocated twice even without an import.
func (s *poolState) createMirrored(ctx context.Context, c calicoState) {
	im, err := newImporter(ctx, s.objects, nil)
	var plan Import
	if err == nil {
		plan, err = im.planCalico(ctx, s.objects, c)
	}
	if err != nil {
		s.problems = append(s.problems, fmt.Errorf("new pools of Calico are not mirrored: %w", err))
		return
	}
	for _, p := range plan.Pools {
		if !p.New {
			continue
		}
		o, err := p.apply(ctx, s.objects)
		var f *model.Error
		switch {
		case err == nil:
			s.set(o)
		case errors.As(err, &f) && f.Code == model.CodeTryAgain: // created meanwhile
		default:
			s.problems = append(s.problems, err)
		}
	}
}

// importAllocation imports an address that is allocated in a block of Calico.
func (im *importer) importAllocation(from string, b calico.Block, g calico.Allocation) error {
	r := model.ReservedAddress{Addr: g.Addr, Owner: g.String(), Source: model.ByCalico}
	node := g.Node
	if node == "" {
		node = b.Node
	}
	if g.Pod != "" && g.VM == "" {
		r.Owner = g.Pod
		if container := g.Container(); container != "" {
			r.ContainerID, r.IfName = container, ifName
		}
		switch {
		case im.pods.Gone(g.Pod):
			im.skip(from, g.Addr, "there is no pod %s", g.Pod)
			return nil
		case im.pods.Moved(g.Pod, g.Addr):
			im.skip(from, g.Addr, "pod %s has another one", g.Pod)
			return nil
		}
		if is := im.pods.Node(g.Pod); is != "" && is != node {
			im.warn("%s: address %s is of pod %s on node %q, and the block says %q", from, g.Addr, g.Pod, is, node)
			node = is
		}
	}
	return im.reserve(from, node, r)
}

// HostLocalAllocation is an address that host-local has allocated on a node.
type HostLocalAllocation struct {
	Network string
	Addr    netip.Addr
	// ContainerID and IfName are the owner that host-local has stored.
	ContainerID, IfName string
}

// PlanHostLocal plans an import of the addresses that host-local has allocated on a node and that are in the status of
// a pod of the node. Host-local has leaked the others.
func PlanHostLocal(
	ctx context.Context, objects store.Objects, random io.Reader, node string, seats []HostLocalAllocation,
) (Import, error) {
	im, err := newImporter(ctx, objects, random)
	if err != nil {
		return Import{}, err
	}
	if len(im.nodes) > 0 && !im.nodes[node] {
		return Import{}, model.Errorf(model.CodeInvalidConf, "use this node's name in `kubectl get nodes`",
			"--node %q: there is no such node", node)
	}
	for _, s := range seats {
		from := "network " + s.Network
		var pods []string
		for _, pod := range im.pods.Having(s.Addr) {
			if im.pods.Node(pod) == node {
				pods = append(pods, pod)
			}
		}
		switch len(pods) {
		case 0:
			im.skip(from, s.Addr, "no pod on node %s has it", node)
			continue
		case 1:
		default:
			im.warn("%s: address %s: pods %s have it: delete all but one", from, s.Addr, strings.Join(pods, ", "))
		}
		r := model.ReservedAddress{
			Addr: s.Addr, Owner: pods[0], ContainerID: s.ContainerID, IfName: s.IfName, Source: model.ByHostLocal,
		}
		if err := im.reserve(from, node, r); err != nil {
			return Import{}, err
		}
	}
	return im.finish(), nil
}
