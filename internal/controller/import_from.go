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

// ifName is what Calico and host-local call the interface of a pod's own network.
const ifName = "eth0"

// PlanCalico says what there is to take over from Calico: its pools, the addresses that its blocks say are given, and
// these blocks. Everything is read before; an object that cannot be understood stops it. random gives the claims'
// numbers.
func PlanCalico(ctx context.Context, objects store.Objects, random io.Reader) (Import, error) {
	im, err := newImporter(ctx, objects, random)
	if err != nil {
		return Import{}, err
	}
	c, err := lookCalico(ctx, objects)
	if err != nil {
		return Import{}, err
	}
	if len(c.problems) > 0 {
		return Import{}, c.problems[0]
	}
	return im.planCalico(ctx, objects, c)
}

func (im *importer) planCalico(ctx context.Context, objects store.Objects, c calicos) (Import, error) {
	for _, p := range c.pools {
		if _, there := im.scene.pools[p.Name]; !there && !p.Deleted {
			im.pools[p.Name] = &PoolImport{Pool: p.Name, New: true, Regions: p.Regions, spec: p, from: c.from[p.Name]}
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
				continue // the other group told of it
			}
			seen[b.CIDR] = true
			for _, given := range b.Given {
				if err := im.given(o.Key.String(), b, given); err != nil {
					return Import{}, err
				}
			}
		}
	}
	return im.finish(), nil
}

// create makes the pools that follow Calico's and are not there yet. What Calico has given of them is reserved in the
// same write: a forgotten import gives no address twice.
func (s *scene) create(ctx context.Context, c calicos) {
	im, err := newImporter(ctx, s.objects, nil)
	var plan Import
	if err == nil {
		plan, err = im.planCalico(ctx, s.objects, c)
	}
	if err != nil {
		s.problems = append(s.problems, fmt.Errorf("new pools of Calico's are not followed: %w", err))
		return
	}
	for _, p := range plan.Pools {
		if !p.New {
			continue
		}
		o, err := p.apply(ctx, s.objects)
		var f *model.Fault
		switch {
		case err == nil:
			s.take(o)
		case errors.As(err, &f) && f.Code == model.CodeTryAgain: // somebody was faster
		default:
			s.problems = append(s.problems, err)
		}
	}
}

// given takes an address over that a block of Calico's says is given.
func (im *importer) given(from string, b calico.Block, g calico.Given) error {
	r := model.ReservedAddress{Addr: g.Addr, For: g.String(), By: model.ByCalico}
	node := g.Node
	if node == "" {
		node = b.Node
	}
	if g.Pod != "" && g.VM == "" {
		r.For = g.Pod
		if container := g.Container(); container != "" {
			r.ContainerID, r.IfName = container, ifName
		}
		switch {
		case im.pods.Gone(g.Pod):
			im.leaveOut(from, g.Addr, "there is no pod %s", g.Pod)
			return nil
		case im.pods.Moved(g.Pod, g.Addr):
			im.leaveOut(from, g.Addr, "pod %s has another one", g.Pod)
			return nil
		}
		if is := im.pods.Node(g.Pod); is != "" && is != node {
			im.doubt("%s: address %s is of pod %s on node %q, and the block says %q", from, g.Addr, g.Pod, is, node)
			node = is
		}
	}
	return im.take(from, node, r)
}

// Seat is an address that host-local has given on a node.
type Seat struct {
	Network string
	Addr    netip.Addr
	// ContainerID and IfName are whose it is, as host-local wrote it.
	ContainerID, IfName string
}

// PlanHostLocal says what there is to take over of what host-local has given on a node: an address that a pod of the
// node says it has. The rest host-local has leaked.
func PlanHostLocal(
	ctx context.Context, objects store.Objects, random io.Reader, node string, seats []Seat,
) (Import, error) {
	im, err := newImporter(ctx, objects, random)
	if err != nil {
		return Import{}, err
	}
	if len(im.nodes) > 0 && !im.nodes[node] {
		return Import{}, model.Faultf(model.CodeInvalidConf, "name the node that this is, as `kubectl get nodes` does",
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
			im.leaveOut(from, s.Addr, "no pod on node %s says that it has it", node)
			continue
		case 1:
		default:
			im.doubt("%s: address %s: pods %s say that they have it: delete all but one", from, s.Addr, strings.Join(pods, ", "))
		}
		r := model.ReservedAddress{
			Addr: s.Addr, For: pods[0], ContainerID: s.ContainerID, IfName: s.IfName, By: model.ByHostLocal,
		}
		if err := im.take(from, node, r); err != nil {
			return Import{}, err
		}
	}
	return im.finish(), nil
}
