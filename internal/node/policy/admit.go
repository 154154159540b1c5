// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy"
)

// Limits of an ADD's waits: for policies after the agent's start, and for its pod, which the kubelet may know before
// the agent.
const (
	startTimeout = 3 * time.Second
	podTimeout   = 5 * time.Second
	// nodeTimeout is how long the ADD of a pod with its own table, and a DEL, wait for a running write of the node's
	// tables.
	nodeTimeout = time.Second
)

// untappedHint is the hint where the kernel has no egress hook for a macvtap.
const untappedHint = "the node's kernel must filter packets that leave a device (Linux 5.16, CONFIG_NETFILTER_EGRESS, CONFIG_NF_TABLES_NETDEV): boot such a kernel, " +
	"use another binding for the VM on this network, or no policy that selects it there"

// Admit writes the policies of the interfaces to the kernel. It reads nothing from the datastore.
func (e *Enforcer) Admit(ctx context.Context, all ...model.WorkloadEndpoint) error {
	if !e.desired.await(ctx, startTimeout, e.desired.readyLocked) {
		return model.Errorf(model.CodeTryAgain, "the kubelet retries; check the API server and the agent's log",
			"network policies are not known yet")
	}
	for _, g := range all {
		known := func() bool {
			return e.desired.readyLocked() &&
				(g.Container || !e.desired.concernedLocked(g.Pod.Namespace) || e.desired.knowsLocked(g.Pod))
		}
		if !e.desired.await(ctx, podTimeout, known) {
			return model.Errorf(
				model.CodeTryAgain, "the kubelet retries; network policies may select the pod by its labels",
				"pod %s is not known yet", g.Pod)
		}
	}
	if err := e.flusher.await(ctx, all); err != nil {
		return err
	}
	e.desired.mu.Lock()
	var inPods []policy.EnforcementPoint
	onNode := false
	for _, g := range all {
		l := e.desired.local[g.Attachment]
		if l == nil {
			l = &local{}
			e.desired.local[g.Attachment] = l
		}
		if l.Standby != g.Standby {
			e.desired.publishDue.Notify()
		}
		e.desired.setEndpointLocked(l, g)
		e.pods.movedLocked(l)
		if p, ok := placeIn(l); ok {
			inPods = append(inPods, p)
		} else {
			onNode = true
		}
	}
	e.desired.mu.Unlock()
	if slices.ContainsFunc(all, func(g model.WorkloadEndpoint) bool { return g.HostEnd != model.HostEndRouted }) {
		e.node.readOwnAddrs(ctx) // bridge ports need it, too
	}
	var late <-chan time.Time // without a table of its own the pod waits for the node's tables without a limit
	if !onNode {
		late = e.cfg.After(nodeTimeout)
	}
	if e.writer.writes.tryLockUntil(late) {
		known, err := e.writer.writeNode(ctx)
		e.writer.writes.unlock()
		if known {
			e.pods.writePods(ctx)
		}
		if err != nil {
			return model.Errorf(model.CodeTryAgain, "the kubelet retries; check the agent's log",
				"network policies could not be written: %w", err)
		}
	} else {
		e.pods.writeAhead(ctx, inPods)
		e.desired.due.Notify()
	}
	return e.admitted(all)
}

// admitted returns an error if the policies of some of the interfaces are not in the kernel.
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
			return model.Errorf(model.CodeTryAgain, "the kubelet retries; check the agent's log",
				"network policies could not be written for the node's bridges: %w", e.node.bridges)
		case ok && at != nil && at.unenforceable != nil:
			return model.Errorf(
				model.CodeTryAgain, "use another binding for the VM on this network, or no policy that selects the pod there",
				"interface %s of pod %s: network policies select it (%s), and the VM drives its device %s directly: they cannot be enforced",
				g.IfName, g.Pod, e.desired.selectingLocked(l.WorkloadEndpoint), g.Device)
		case !ok || at == nil || at.broken == nil:
		case g.Tap:
			return model.Errorf(model.CodeTryAgain, untappedHint,
				"network policies could not be written at the macvtap %s of pod %s: %w", g.IfName, g.Pod, at.broken)
		default:
			return model.Errorf(model.CodeTryAgain, "the kubelet retries; check the agent's log",
				"network policies could not be written in pod %s: %w", g.Pod, at.broken)
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
				e.node.addrsRead = time.Time{} // the ADD may have assigned an address to the host interface
				e.desired.due.Notify()
			}
		}
	}
	e.desired.publishDue.Notify()
	e.desired.checkDue.Notify() // what an agent that was killed has not flushed
}

// Adopt takes over the interfaces that the previous agent has admitted. It must be called before Run.
func (e *Enforcer) Adopt(all ...model.WorkloadEndpoint) {
	e.desired.mu.Lock()
	defer e.desired.mu.Unlock()
	for _, g := range all {
		l := &local{done: true}
		e.desired.local[g.Attachment] = l
		e.desired.setEndpointLocked(l, g)
		if l.Point() == model.PointPort {
			e.pods.stale[g.Attachment] = false
		}
	}
}

// Release ends enforcement on an interface. A failed or slow write is retried later: the interface is gone.
func (e *Enforcer) Release(ctx context.Context, key model.AttachmentKey) error {
	l := e.drop(key)
	if l == nil {
		return nil
	}
	e.flusher.release(l.WorkloadEndpoint)
	if e.writer.writes.tryLockUntil(e.cfg.After(nodeTimeout)) {
		known, err := e.writer.writeNode(ctx)
		e.writer.writes.unlock()
		if known {
			e.pods.writePods(ctx)
		}
		if err != nil {
			e.log.Warn("policies could not be written, and are retried", "err", err)
		}
	} else {
		e.desired.due.Notify()
	}
	e.pods.leave(l)
	e.desired.publishDue.Notify()
	return nil
}

// drop removes an interface from all state, and returns it; nil if there is none.
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
	if l.Container {
		delete(e.desired.pods, model.PodRef{Namespace: l.Pod.Namespace, Name: l.Pod.Name})
		e.desired.index.DelPod(l.Pod.Namespace, l.Pod.Name)
	}
	for _, other := range e.desired.local { // the pod's next sandbox
		if other.Key() == l.Key() {
			e.desired.index.SetEndpoint(other.WorkloadEndpoint)
			e.pods.movedLocked(other)
		}
	}
	return l
}
