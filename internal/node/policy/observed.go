// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"strings"

	"github.com/weft-net/weft/internal/kernel/nflog"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy"
)

// DeniedPacket is a packet that a policy of this node denied.
type DeniedPacket struct {
	nflog.Packet
	// Network is that of the interface; empty: the cluster's.
	Network string
	// Direction is ingress or egress; Policies isolate the endpoint, and have no rule that allows the packet.
	Direction string
	Policies  []model.PolicyKey
}

// LogsDenied reports whether denied packets are logged, so that ObserveDenied has any.
func (e *Enforcer) LogsDenied() bool { return e.cfg.LogGroup != 0 }

// ObserveDenied calls f for each denied packet that is logged, at most ten in a second for the same policies, until stop
// is called. f must not block.
func (e *Enforcer) ObserveDenied(f func(DeniedPacket)) (stop func()) {
	d := e.desired
	key := &f
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.deniedObservers == nil {
		d.deniedObservers = map[*func(DeniedPacket)]bool{}
	}
	d.deniedObservers[key] = true
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.deniedObservers, key)
	}
}

// Decide returns what the policies of this node's endpoints decide about a flow of a network. known is false while
// policies are not synced; without any policy in the cluster there are no sides.
func (e *Enforcer) Decide(network string, f policy.Flow) (sides []policy.Side, known bool) {
	e.desired.mu.Lock()
	defer e.desired.mu.Unlock()
	switch {
	case !e.desired.readyLocked():
		return nil, false
	case len(e.desired.known) == 0:
		return nil, true
	}
	return e.desired.index.Decide(network, f), true
}

// DecideAtHosts returns what this node's host endpoints decide about a flow; unknown is why that is not known.
func (e *Enforcer) DecideAtHosts(f policy.Flow) (sides []policy.Side, unknown string) {
	e.desired.mu.Lock()
	defer e.desired.mu.Unlock()
	if !e.desired.readyLocked() {
		return nil, "policies are not known yet"
	}
	return e.desired.index.Calico().Through(f)
}

// Version changes whenever what Decide and Holder return may have changed.
func (e *Enforcer) Version() uint64 {
	e.desired.mu.Lock()
	defer e.desired.mu.Unlock()
	const states = 4
	v := e.desired.index.Version() * states
	if e.desired.readyLocked() {
		v++
	}
	if len(e.desired.known) > 0 {
		v += 2
	}
	return v
}

// Holder returns the pod that has an address of a network, which may be another node's, and its node if that is known;
// false if policies are not synced, or no pod has it.
func (e *Enforcer) Holder(network string, a netip.Addr) (pod model.PodRef, node string, ok bool) {
	e.desired.mu.Lock()
	defer e.desired.mu.Unlock()
	if !e.desired.readyLocked() {
		return pod, "", false
	}
	if pod = e.desired.index.Holder(network, a); pod.Name == "" {
		return pod, "", false
	}
	return pod, e.desired.index.NodeOf(pod), true
}

// parsePrefix parses the prefix of a log rule (policy.Denial).
func parsePrefix(prefix string) (direction string, policies []model.PolicyKey) {
	dir, rest, _ := strings.Cut(prefix, ":")
	direction = "ingress"
	if dir == "out" {
		direction = "egress"
	}
	kind, names, ok := strings.Cut(rest, ":")
	if !ok { // the pod is not known
		return direction, nil
	}
	for name := range strings.SplitSeq(names, "+") {
		key := model.PolicyKey{Kind: model.PolicyKind(kind), Name: name}
		if other, rest, ok := strings.Cut(name, ":"); ok { // another kind than the first one's
			key.Kind, key.Name, name = model.PolicyKind(other), rest, rest
		}
		if namespace, name, ok := strings.Cut(name, "/"); ok {
			key.Namespace, key.Name = namespace, name
		}
		policies = append(policies, key)
	}
	return direction, policies
}
