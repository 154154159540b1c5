// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy"
)

// How long an ADD waits for what is not known yet: for policies when the agent has just started, for its pod when the
// kubelet was told of it before the agent was.
const (
	startPatience = 3 * time.Second
	podPatience   = 5 * time.Second
	// nodePatience is how long the ADD of a pod that is judged in its own namespace, and a DEL, wait for who writes the
	// node's tables.
	nodePatience = time.Second
)

// untapped is the way out where the kernel has no rules for a macvtap.
const untapped = "the node's kernel must judge packets that leave a device (Linux 5.16, CONFIG_NETFILTER_EGRESS, CONFIG_NF_TABLES_NETDEV): boot such a one, " +
	"have the machine use another binding on this network, or have no policy select it there"

// Admit makes what policies say of the interfaces stand in the kernel. Nothing is asked of the store.
func (e *Enforcer) Admit(ctx context.Context, all ...model.WorkloadEndpoint) error {
	if !e.desired.await(ctx, startPatience, e.desired.ready) {
		return model.Faultf(model.CodeTryAgain, "it is tried again; look at the API server, and at the agent's log",
			"network policies are not known yet")
	}
	for _, g := range all {
		known := func() bool {
			return e.desired.ready() && (!e.desired.concerned(g.Pod.Namespace) || e.desired.knows(g.Pod))
		}
		if !e.desired.await(ctx, podPatience, known) {
			return model.Faultf(
				model.CodeTryAgain, "it is tried again; network policies could be about it, and go by its labels",
				"pod %s is not known yet", g.Pod)
		}
	}
	e.desired.mu.Lock()
	var inPods []policy.Place
	onNode := false
	for _, g := range all {
		l := e.desired.local[g.Attachment]
		if l == nil {
			l = &local{}
			e.desired.local[g.Attachment] = l
		}
		if l.Standby != g.Standby {
			e.desired.news.Notify()
		}
		e.desired.setEndpoint(l, g)
		e.pods.moved(l)
		if p, ok := placeIn(l); ok {
			inPods = append(inPods, p)
		} else {
			onNode = true
		}
	}
	e.desired.mu.Unlock()
	if slices.ContainsFunc(all, func(g model.WorkloadEndpoint) bool { return g.HostEnd != model.HostEndRouted }) {
		e.node.self() // ports are asked for it, too
	}
	var late <-chan time.Time // who is judged on the node waits for the node's tables, however long they take
	if !onNode {
		late = e.cfg.After(nodePatience)
	}
	if e.writer.writes.takeUnless(late) {
		known, err := e.writer.writeNode(ctx)
		e.writer.writes.end()
		if known {
			e.pods.writePods(ctx)
		}
		if err != nil {
			return model.Faultf(model.CodeTryAgain, "it is tried again; look at the agent's log",
				"network policies cannot be written: %w", err)
		}
	} else {
		e.pods.writeAhead(ctx, inPods)
		e.desired.due.Notify()
	}
	return e.admitted(all)
}

// admitted tells whether what policies say of interfaces stands in the kernel.
func (e *Enforcer) admitted(all []model.WorkloadEndpoint) error {
	e.desired.mu.Lock()
	defer e.desired.mu.Unlock()
	for _, g := range all {
		l := e.desired.local[g.Attachment]
		if l == nil {
			continue // it has been released
		}
		p, ok := placeIn(l)
		at := e.pods.places[p]
		switch {
		case l.Point() == model.PointPort && e.node.bridges != nil:
			return model.Faultf(model.CodeTryAgain, "it is tried again; look at the agent's log",
				"network policies cannot be written for the node's bridges: %w", e.node.bridges)
		case ok && at != nil && at.unseen != nil:
			return model.Faultf(
				model.CodeTryAgain, "have no policy select the pod on this network, or have the machine use another binding there",
				"interface %s of pod %s: network policies select it (%s), and the machine drives its device %s by itself: nothing can judge what that sends and gets",
				g.IfName, g.Pod, e.desired.selecting(l.WorkloadEndpoint), g.Device)
		case !ok || at == nil || at.broken == nil:
		case g.Tap:
			return model.Faultf(model.CodeTryAgain, untapped,
				"network policies cannot be written at the macvtap %s of pod %s: %w", g.IfName, g.Pod, at.broken)
		default:
			return model.Faultf(model.CodeTryAgain, "it is tried again; look at the agent's log",
				"network policies cannot be written in pod %s: %w", g.Pod, at.broken)
		}
	}
	return nil
}

// Attached publishes interfaces whose ADD is done.
func (e *Enforcer) Attached(keys ...model.AttachmentKey) {
	e.desired.mu.Lock()
	defer e.desired.mu.Unlock()
	for _, k := range keys {
		if l := e.desired.local[k]; l != nil {
			l.done = true
			if l.Point() != model.PointHost {
				e.node.looked = time.Time{} // the ADD may have given the node's end an address
				e.desired.due.Notify()
			}
		}
	}
	e.desired.news.Notify()
}

// Adopt takes over the interfaces that an agent before has admitted. It is called before Run.
func (e *Enforcer) Adopt(all ...model.WorkloadEndpoint) {
	e.desired.mu.Lock()
	defer e.desired.mu.Unlock()
	for _, g := range all {
		l := &local{done: true}
		e.desired.local[g.Attachment] = l
		e.desired.setEndpoint(l, g)
		if l.Point() == model.PointPort {
			e.pods.stale[g.Attachment] = false
		}
	}
}

// Release gives up what Admit made. What cannot be written, or not soon, is written later: an interface that is gone
// needs nothing.
func (e *Enforcer) Release(ctx context.Context, key model.AttachmentKey) error {
	l := e.drop(key)
	if l == nil {
		return nil
	}
	if e.writer.writes.takeUnless(e.cfg.After(nodePatience)) {
		known, err := e.writer.writeNode(ctx)
		e.writer.writes.end()
		if known {
			e.pods.writePods(ctx)
		}
		if err != nil {
			e.log.Warn("policies are written later", "err", err)
		}
	} else {
		e.desired.due.Notify()
	}
	e.pods.leave(l)
	e.desired.news.Notify()
	return nil
}

// drop takes an interface out of all that is known, and gives it; nil where there is none.
func (e *Enforcer) drop(key model.AttachmentKey) *local {
	e.desired.mu.Lock()
	defer e.desired.mu.Unlock()
	l := e.desired.local[key]
	if l == nil {
		return nil
	}
	delete(e.desired.local, key)
	delete(e.pods.stale, key)
	e.desired.index.DelEndpoint(l.Key())
	for _, other := range e.desired.local { // the pod's next sandbox
		if other.Key() == l.Key() {
			e.desired.index.SetEndpoint(other.WorkloadEndpoint)
			e.pods.moved(other)
		}
	}
	return l
}
