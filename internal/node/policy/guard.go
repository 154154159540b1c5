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
	if !e.await(ctx, startPatience, e.ready) {
		return model.Faultf(model.CodeTryAgain, "it is tried again; look at the API server, and at the agent's log",
			"network policies are not known yet")
	}
	for _, g := range all {
		known := func() bool { return e.ready() && (!e.concerned(g.Pod.Namespace) || e.knows(g.Pod)) }
		if !e.await(ctx, podPatience, known) {
			return model.Faultf(
				model.CodeTryAgain, "it is tried again; network policies could be about it, and go by its labels",
				"pod %s is not known yet", g.Pod)
		}
	}
	e.mu.Lock()
	var inPods []policy.Place
	onNode := false
	for _, g := range all {
		l := e.local[g.Attachment]
		if l == nil {
			l = &local{}
			e.local[g.Attachment] = l
		}
		if l.Standby != g.Standby {
			token(e.news)
		}
		e.setEndpoint(l, g)
		e.moved(l)
		if p, ok := placeIn(l); ok {
			inPods = append(inPods, p)
		} else {
			onNode = true
		}
	}
	e.mu.Unlock()
	if slices.ContainsFunc(all, func(g model.WorkloadEndpoint) bool { return g.HostEnd != model.HostEndRouted }) {
		e.self() // ports are asked for it, too
	}
	var late <-chan time.Time // who is judged on the node waits for the node's tables, however long they take
	if !onNode {
		late = e.cfg.After(nodePatience)
	}
	if e.writes.takeUnless(late) {
		known, err := e.writeNode(ctx)
		e.writes.end()
		if known {
			e.writePods(ctx)
		}
		if err != nil {
			return model.Faultf(model.CodeTryAgain, "it is tried again; look at the agent's log",
				"network policies cannot be written: %w", err)
		}
	} else {
		e.writeAhead(ctx, inPods)
		token(e.due)
	}
	return e.admitted(all)
}

// admitted tells whether what policies say of interfaces stands in the kernel.
func (e *Enforcer) admitted(all []model.WorkloadEndpoint) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, g := range all {
		l := e.local[g.Attachment]
		if l == nil {
			continue // it has been released
		}
		p, ok := placeIn(l)
		at := e.places[p]
		switch {
		case l.Point() == model.PointPort && e.bridges != nil:
			return model.Faultf(model.CodeTryAgain, "it is tried again; look at the agent's log",
				"network policies cannot be written for the node's bridges: %w", e.bridges)
		case ok && at != nil && at.unseen != nil:
			return model.Faultf(
				model.CodeTryAgain, "have no policy select the pod on this network, or have the machine use another binding there",
				"interface %s of pod %s: network policies select it (%s), and the machine drives its device %s by itself: nothing can judge what that sends and gets",
				g.IfName, g.Pod, e.selecting(l.WorkloadEndpoint), g.Device)
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
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, k := range keys {
		if l := e.local[k]; l != nil {
			l.done = true
			if l.Point() != model.PointHost {
				e.looked = time.Time{} // the ADD may have given the node's end an address
				token(e.due)
			}
		}
	}
	token(e.news)
}

// Adopt takes over the interfaces that an agent before has admitted. It is called before Run.
func (e *Enforcer) Adopt(all ...model.WorkloadEndpoint) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, g := range all {
		l := &local{done: true}
		e.local[g.Attachment] = l
		e.setEndpoint(l, g)
		if l.Point() == model.PointPort {
			e.stale[g.Attachment] = false
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
	if e.writes.takeUnless(e.cfg.After(nodePatience)) {
		known, err := e.writeNode(ctx)
		e.writes.end()
		if known {
			e.writePods(ctx)
		}
		if err != nil {
			e.log.Warn("policies are written later", "err", err)
		}
	} else {
		token(e.due)
	}
	e.leave(l)
	token(e.news)
	return nil
}

// drop takes an interface out of all that is known, and gives it; nil where there is none.
func (e *Enforcer) drop(key model.AttachmentKey) *local {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.local[key]
	if l == nil {
		return nil
	}
	delete(e.local, key)
	delete(e.stale, key)
	e.index.DelEndpoint(l.Key())
	for _, other := range e.local { // the pod's next sandbox
		if other.Key() == l.Key() {
			e.index.SetEndpoint(other.WorkloadEndpoint)
			e.moved(other)
		}
	}
	return l
}

// knows tells whether a pod of this node is known. The lock is held.
func (e *Enforcer) knows(ref model.PodRef) bool {
	is, ok := e.pods[model.PodRef{Namespace: ref.Namespace, Name: ref.Name}]
	return ok && (ref.UID == "" || ref.UID == is.uid || ref.UID == is.hash)
}

// setEndpoint gives the index an endpoint that attach names, under the UID that its pod has in the API. The lock is
// held.
func (e *Enforcer) setEndpoint(l *local, is model.WorkloadEndpoint) {
	was := l.WorkloadEndpoint
	l.WorkloadEndpoint, l.pod = is, is.Pod
	l.Node = e.cfg.Node
	if e.knows(l.pod) {
		l.Pod.UID = e.pods[model.PodRef{Namespace: l.Pod.Namespace, Name: l.Pod.Name}].uid
	}
	if was.IfName != "" && was.Key() != l.Key() {
		e.index.DelEndpoint(was.Key())
	}
	if !was.EqualInPolicy(l.WorkloadEndpoint) {
		e.index.SetEndpoint(l.WorkloadEndpoint)
		token(e.news)
	}
}

// refreshEndpoint gives the index an endpoint again after more was learned of its pod. The lock is held.
func (e *Enforcer) refreshEndpoint(l *local) {
	is := l.WorkloadEndpoint
	is.Pod = l.pod
	e.setEndpoint(l, is)
}
