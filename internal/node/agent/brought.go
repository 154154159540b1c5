// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/kube"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// broughtAgain is when what could not be written is tried again, from the first time to the longest.
const broughtAgain, broughtLongest = time.Second, 30 * time.Second

// bringing has the addresses that pods brought along looked at again.
func (a *agent) bringing() {
	a.brought.Notify()
}

// tellBrought keeps the part of the node's object that tells the other nodes which addresses its pods have brought along, until
// ctx ends.
func (a *agent) tellBrought(ctx context.Context) error {
	changed, cancel := a.facts.Subscribe()
	defer cancel()
	pause, trouble := broughtAgain, ""
	var said []model.Brought
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-a.brought:
		case <-again:
		}
		again = nil
		next, err := a.tellBroughtOnce(ctx, said)
		if err == nil {
			said, pause, trouble = next, broughtAgain, ""
			continue
		}
		if words := err.Error(); words != trouble && ctx.Err() == nil {
			trouble = words
			a.cfg.Log.Warn("other nodes do not know all addresses of this node's pods", "err", err)
		}
		again, pause = a.cfg.After(pause), min(2*pause, broughtLongest)
	}
}

// tellBroughtOnce writes what differs, and gives what is said now.
func (a *agent) tellBroughtOnce(ctx context.Context, said []model.Brought) ([]model.Brought, error) {
	self, known := a.self()
	if !known {
		return said, nil // there will be news
	}
	all, err := a.attacher.Brought()
	if err != nil {
		return said, err
	}
	next := a.inTurn(all, slices.Concat(said, self.Brought))
	if slices.Equal(next, self.Brought) {
		return next, nil
	}
	text, err := store.WriteBrought(next)
	if err != nil {
		return said, err
	}
	if a.kube != nil {
		status := kube.NodeStatus{Annotations: map[string]string{store.BroughtAnnotation: text}}
		if text == "" {
			status = kube.NodeStatus{Dropped: []string{store.BroughtAnnotation}}
		}
		err = a.kube.PatchNode(ctx, self.Name, status)
	} else if a.dir != nil {
		_, err = a.dir.Modify(ctx, store.NodeKey(self.Name), store.Annotate(map[string]string{store.BroughtAnnotation: text}))
	}
	if err != nil {
		return said, fmt.Errorf("node %s: %w", self.Name, err)
	}
	return next, nil
}

// inTurn is what is told of addresses: those that the configuration permits. Who has one already keeps its turn, and who comes
// after others, on whatever node, has the next.
func (a *agent) inTurn(all []attach.Brought, before []model.Brought) []model.Brought {
	var out []model.Brought
	for _, b := range all {
		if !slices.ContainsFunc(a.cfg.Network.PodAddresses, func(p netip.Prefix) bool { return p.Contains(b.Addr) }) ||
			slices.ContainsFunc(out, func(o model.Brought) bool { return o.Addr == b.Addr }) {
			continue
		}
		one := model.Brought{Addr: b.Addr, Pod: b.Pod.String(), UID: b.Pod.UID}
		if i := slices.IndexFunc(before, func(o model.Brought) bool { return o.Addr == one.Addr && o.Pod == one.Pod && o.UID == one.UID }); i >= 0 {
			one.Turn = before[i].Turn
		} else {
			for _, n := range a.facts.Cluster().Nodes {
				for _, o := range n.Brought {
					if o.Addr == one.Addr {
						one.Turn = max(one.Turn, o.Turn+1)
					}
				}
			}
		}
		out = append(out, one)
	}
	slices.SortFunc(out, func(a, b model.Brought) int { return a.Addr.Compare(b.Addr) })
	return out
}

// elsewhere refuses an address that a pod of this node brings along where another node, or a pod there, has it.
func (a *agent) elsewhere(ctx context.Context, addr netip.Addr, pod model.PodRef) error {
	if a.facts == nil || a.facts.Cluster() == nil {
		return nil
	}
	c := a.facts.Cluster()
	taken := func(who string) error {
		return model.Faultf(model.CodeTaken, "choose another address", "address %s is %s", addr, who)
	}
	for _, b := range c.Blocks {
		if b.CIDR.Contains(addr) && b.Holder(addr) != c.Self && a.fromPools() {
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
			if p.Contains(addr) && !a.fromPools() {
				return taken("in the podCIDR " + p.String() + " of node " + n.Name)
			}
		}
		holder, err := a.holder(ctx, c, n, addr, pod)
		if err != nil {
			return err
		}
		if holder != "" {
			return taken("taken by pod " + holder + " on node " + n.Name)
		}
	}
	return nil
}

// holder is the pod of another node that has brought an address along and is still there, if it is another one than that.
func (a *agent) holder(ctx context.Context, c *model.Cluster, n model.Node, addr netip.Addr, but model.PodRef) (string, error) {
	for _, b := range n.Brought {
		if b.Addr != addr || b.Pod == but.String() {
			continue
		}
		switch there, err := a.there(ctx, c, b); {
		case err != nil:
			return "", model.Faultf(model.CodeTryAgain, "delete that pod, if it is still there",
				"address %s was taken by pod %s on node %s, and whether it is there is not known: %w", addr, b.Pod, n.Name, err)
		case there:
			return b.Pod, nil
		}
	}
	return "", nil
}

// there tells whether a pod of another node still exists. Only who wants its address asks.
func (a *agent) there(ctx context.Context, c *model.Cluster, b model.Brought) (bool, error) {
	namespace, name, _ := strings.Cut(b.Pod, "/")
	if a.kube == nil {
		return slices.ContainsFunc(c.Pods, func(p model.Pod) bool {
			return p.Namespace == namespace && p.Name == name && (b.UID == "" || p.UID == b.UID)
		}), nil
	}
	_, err := a.kube.Pod(ctx, model.PodRef{Namespace: namespace, Name: name, UID: b.UID})
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}
