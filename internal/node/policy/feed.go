// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// configHash is the annotation of a static pod's mirror pod in the API with the UID that the kubelet uses.
const configHash = "kubernetes.io/config.hash"

// UnsupportedReporter receives the unsupported parts of policies. It must not block.
type UnsupportedReporter interface {
	// Unsupported reports the unsupported parts of a policy; none: all of it is supported.
	Unsupported(key model.PolicyKey, parts []string)
	// Invalid reports an object that policies need, such as a tier or a host endpoint, and that cannot be understood.
	Invalid(o store.Object, why error)
}

// feed reads the datastore: policies and namespaces, and once there is a policy the peers.
type feed struct {
	cfg     *Config
	log     *slog.Logger
	desired *desired // its lock guards the fields below

	calico *calicoFeed

	// held are policies that arrived before the peers were synced; nil for a deleted one.
	held map[model.PolicyKey]*model.Policy
	// published are the interfaces of other nodes, by node.
	published map[string][]model.EndpointKey
	// containers are those of other nodes that have no Pod object, by node.
	containers map[string][]model.PodRef
	// podCount is the number of pods, reportedPods the last number that PodCount was called with.
	podCount, reportedPods int
}

// followPolicies watches policies and namespaces until ctx ends.
func (fe *feed) followPolicies(ctx context.Context) error {
	return fe.follow(ctx, func() { fe.desired.policiesSynced = true },
		store.NetworkPolicies(), store.ClusterNetworkPolicies(), store.MultiNetworkPolicies(), store.Namespaces())
}

// watchPause is the pause before a failed watch is retried.
const watchPause = time.Second

// followPeers watches the peers once there is a policy.
func (fe *feed) followPeers(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-fe.desired.peers:
	}
	return fe.follow(ctx, fe.peersSyncedLocked, store.Pods(), store.Nodes(), store.NodeEndpoints())
}

// follow handles the events of some kinds. It retries a datastore that cannot be read at the start: until then no pod
// is admitted that a policy could select.
func (fe *feed) follow(ctx context.Context, synced func(), kinds ...store.Kind) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := fe.cfg.Source.Watch(ctx, kinds...)
	for ; err != nil; events, err = fe.cfg.Source.Watch(ctx, kinds...) {
		if ctx.Err() != nil {
			return nil
		}
		fe.log.Error("policies could not be read", "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-fe.cfg.After(watchPause):
		}
	}
	for ev := range events {
		fe.desired.mu.Lock()
		if ev.Type == store.Synced {
			synced()
		} else {
			fe.handleLocked(ev)
			if fe.desired.since.IsZero() && fe.desired.readyLocked() {
				fe.desired.since = fe.cfg.Now()
			}
		}
		fe.desired.changedLocked()
		fe.desired.mu.Unlock()
		fe.desired.due.Notify()
	}
	return nil
}

// peersSyncedLocked enforces the policies that were held until the peers were synced.
func (fe *feed) peersSyncedLocked() {
	fe.desired.peersSynced = true
	for key, p := range fe.held {
		if p == nil {
			fe.desired.index.DelPolicy(key)
		} else {
			fe.desired.index.SetPolicy(*p)
		}
	}
	fe.held = nil
	fe.desired.publishDue.Notify()
	fe.desired.checkDue.Notify()
}

// handleLocked passes an event to the index.
func (fe *feed) handleLocked(ev store.Event) {
	key, gone := ev.Object.Key, ev.Type == store.Deleted
	var err error
	switch {
	case ev.Type == store.Faulty:
		err = ev.Err
	case key.Of(store.NetworkPolicies()), key.Of(store.ClusterNetworkPolicies()), key.Of(store.MultiNetworkPolicies()):
		err = fe.handlePolicyLocked(ev.Object, gone)
	case key.Of(store.Namespaces()):
		err = fe.handleNamespaceLocked(ev.Object, gone)
	case key.Of(store.Pods()):
		fe.countPodsLocked(ev.Type)
		err = fe.handlePodLocked(ev.Object, gone)
	case key.Of(store.Nodes()):
		err = fe.handleNodeLocked(ev.Object, gone)
	case key.Of(store.NodeEndpoints()):
		err = fe.handleEndpointsLocked(ev.Object, gone)
	default:
		err = fe.calico.handleLocked(ev.Object, gone)
	}
	if err != nil {
		fe.log.Warn("object is invalid; its valid parts, or its last valid version, are in force", "object", key.String(), "err", err)
	}
}

// countPodsLocked counts the pods and calls PodCount, but not for each of them.
func (fe *feed) countPodsLocked(what store.EventType) {
	switch what {
	case store.Added:
		fe.podCount++
	case store.Deleted:
		fe.podCount--
	}
	if d := fe.podCount - fe.reportedPods; fe.cfg.PodCount != nil && (d >= 500 || d <= -500) {
		fe.reportedPods = fe.podCount
		fe.cfg.PodCount(fe.podCount)
	}
}

func (fe *feed) handlePolicyLocked(o store.Object, gone bool) error {
	key := model.PolicyKey{Kind: model.PolicyKind(o.Key.Kind), Namespace: o.Key.Namespace, Name: o.Key.Name}
	if gone {
		fe.setPolicyLocked(key, nil)
		return nil
	}
	p, err := o.Policy()
	if err != nil {
		fe.keepPolicyLocked(key, err)
		return err
	}
	fe.setPolicyLocked(key, &p)
	return nil
}

// keepPolicyLocked records that a policy is invalid: its last valid version stays in force.
func (fe *feed) keepPolicyLocked(key model.PolicyKey, err error) {
	if _, had := fe.desired.known[key]; !had {
		fe.desired.about[key.Namespace]++
	}
	fe.desired.known[key] = known{unsupported: err.Error()}
	fe.reportUnsupportedLocked(key, []string{err.Error()})
	fe.desired.wantPeersLocked()
}

// setPolicyLocked passes a policy to the index; nil deletes it.
func (fe *feed) setPolicyLocked(key model.PolicyKey, p *model.Policy) {
	fe.recordPolicyLocked(key, p)
	if !fe.desired.peersSynced {
		fe.held[key] = p
		if p != nil {
			fe.desired.wantPeersLocked()
		}
		return
	}
	if p == nil {
		fe.desired.index.DelPolicy(key)
	} else {
		fe.desired.index.SetPolicy(*p)
	}
	fe.desired.checkDue.Notify()
}

// recordPolicyLocked records a policy, what it could select, and its unsupported parts.
func (fe *feed) recordPolicyLocked(key model.PolicyKey, p *model.Policy) {
	was, had := fe.desired.known[key]
	if p == nil {
		delete(fe.desired.known, key)
		if had {
			fe.desired.about[key.Namespace]--
		}
		return
	}
	if !had {
		fe.desired.about[key.Namespace]++
	}
	is := known{unsupported: strings.Join(p.Errors, "; ")}
	fe.desired.known[key] = is
	if is.unsupported != was.unsupported || !had && is.unsupported != "" {
		fe.reportUnsupportedLocked(key, p.Errors)
	}
}

func (fe *feed) handleNamespaceLocked(o store.Object, gone bool) error {
	if gone {
		fe.desired.index.DelNamespace(o.Key.Name)
		fe.desired.checkDue.Notify()
		return nil
	}
	n, err := o.Namespace()
	if err == nil {
		fe.desired.index.SetNamespace(n)
		fe.desired.checkDue.Notify()
	}
	return err
}

func (fe *feed) handlePodLocked(o store.Object, gone bool) error {
	name := model.PodRef{Namespace: o.Key.Namespace, Name: o.Key.Name}
	if gone {
		delete(fe.desired.pods, name)
		fe.desired.index.DelPod(name.Namespace, name.Name)
		fe.desired.checkDue.Notify()
		return nil
	}
	p, err := o.Pod()
	if err != nil {
		return err
	}
	fe.desired.index.SetPod(p)
	fe.desired.checkDue.Notify()
	if p.Node != fe.cfg.Node {
		delete(fe.desired.pods, name)
		return nil
	}
	fe.desired.pods[name] = identity{uid: p.UID, hash: p.Annotations[configHash]}
	for _, l := range fe.desired.local { // the interface may be known before its pod
		if l.Pod.Namespace == name.Namespace && l.Pod.Name == name.Name {
			fe.desired.refreshEndpointLocked(l)
		}
	}
	return nil
}

func (fe *feed) handleNodeLocked(o store.Object, gone bool) error {
	fe.desired.checkDue.Notify()
	if gone {
		fe.desired.index.DelNode(o.Key.Name)
		return nil
	}
	n, err := o.Node()
	if err == nil {
		fe.desired.index.SetNode(n)
	}
	return err
}

// handleEndpointsLocked handles the published interfaces of another node.
func (fe *feed) handleEndpointsLocked(o store.Object, gone bool) error {
	node := o.Key.Name
	if node == fe.cfg.Node {
		return nil
	}
	fe.desired.checkDue.Notify()
	var all []model.WorkloadEndpoint
	if !gone {
		var err error
		if all, err = o.NodeEndpoints(); err != nil {
			return err
		}
	}
	keys := make([]model.EndpointKey, 0, len(all))
	var containers []model.PodRef
	for _, one := range all {
		keys = append(keys, one.Key())
		if one.Container {
			fe.desired.index.SetPod(containerPod(one))
			containers = append(containers, one.Pod)
		}
		fe.desired.index.SetEndpoint(one)
	}
	for _, was := range fe.published[node] {
		if !slices.Contains(keys, was) {
			fe.desired.index.DelEndpoint(was)
		}
	}
	for _, was := range fe.containers[node] {
		if !slices.Contains(containers, was) {
			fe.desired.index.DelPod(was.Namespace, was.Name)
		}
	}
	if fe.containers[node] = containers; len(containers) == 0 {
		delete(fe.containers, node)
	}
	if len(keys) == 0 {
		delete(fe.published, node)
		return nil
	}
	fe.published[node] = keys
	return nil
}

// reportUnsupportedLocked reports the unsupported parts of a policy.
func (fe *feed) reportUnsupportedLocked(key model.PolicyKey, parts []string) {
	if len(parts) > 0 {
		fe.log.Warn("policy has unsupported parts, which allow nothing", "policy", key.String(), "unsupported", parts)
	}
	if fe.cfg.Unsupported != nil {
		fe.cfg.Unsupported.Unsupported(key, parts)
	}
}
