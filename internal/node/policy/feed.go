// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// configHash is, on the pod that stands for a static one in the API, the uid by which the kubelet knows it.
const configHash = "kubernetes.io/config.hash"

// followPolicies follows policies and namespaces until ctx ends.
func (e *Enforcer) followPolicies(ctx context.Context) error {
	return e.follow(ctx, func() { e.told = true },
		store.NetworkPolicies(), store.ClusterNetworkPolicies(), store.MultiNetworkPolicies(), store.Namespaces())
}

// watchPause is when a store is asked again that could not be read.
const watchPause = time.Second

// followPeers follows everything that policies can be about, once there is one.
func (e *Enforcer) followPeers(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-e.peers:
	}
	return e.follow(ctx, e.meet, store.Pods(), store.Nodes(), store.NodeEndpoints())
}

// follow takes in what happens to objects. A store that cannot be read when this begins is asked again: until then no
// pod is let in that a policy could be about.
func (e *Enforcer) follow(ctx context.Context, synced func(), kinds ...store.Kind) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := e.cfg.Source.Watch(ctx, kinds...)
	for ; err != nil; events, err = e.cfg.Source.Watch(ctx, kinds...) {
		if ctx.Err() != nil {
			return nil
		}
		e.log.Error("policies cannot be read", "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-e.cfg.After(watchPause):
		}
	}
	for ev := range events {
		e.mu.Lock()
		if ev.Type == store.Synced {
			synced()
		} else {
			e.take(ev)
		}
		e.changed()
		e.mu.Unlock()
		token(e.due)
	}
	return nil
}

// meet brings the policies into force that waited for the peers. The lock is held.
func (e *Enforcer) meet() {
	e.met = true
	for key, p := range e.held {
		if p == nil {
			e.index.DelPolicy(key)
		} else {
			e.index.SetPolicy(*p)
		}
	}
	e.held = nil
	token(e.news)
	token(e.judge)
}

// take gives the index an event. The lock is held.
func (e *Enforcer) take(ev store.Event) {
	key, gone := ev.Object.Key, ev.Type == store.Deleted
	var err error
	switch {
	case ev.Type == store.Faulty:
		err = ev.Err
	case key.Of(store.NetworkPolicies()), key.Of(store.ClusterNetworkPolicies()), key.Of(store.MultiNetworkPolicies()):
		err = e.takePolicy(ev.Object, gone)
	case key.Of(store.Namespaces()):
		err = e.takeNamespace(ev.Object, gone)
	case key.Of(store.Pods()):
		e.crowded(ev.Type)
		err = e.takePod(ev.Object, gone)
	case key.Of(store.Nodes()):
		err = e.takeNode(ev.Object, gone)
	case key.Of(store.NodeEndpoints()):
		err = e.takeEndpoints(ev.Object, gone)
	}
	if err != nil {
		e.log.Warn("left out, or kept as it was before", "object", key.String(), "err", err)
	}
}

// crowded says how many pods there are, but not for each of them.
func (e *Enforcer) crowded(what store.EventType) {
	switch what {
	case store.Added:
		e.crowd++
	case store.Deleted:
		e.crowd--
	}
	if d := e.crowd - e.sized; e.cfg.Sized != nil && (d >= 500 || d <= -500) {
		e.sized = e.crowd
		e.cfg.Sized(e.crowd)
	}
}

func (e *Enforcer) takePolicy(o store.Object, gone bool) error {
	key := model.PolicyKey{Kind: model.PolicyKind(o.Key.Kind), Namespace: o.Key.Namespace, Name: o.Key.Name}
	var p *model.Policy
	if !gone {
		read, err := o.Policy()
		if err != nil {
			if _, had := e.known[key]; !had {
				e.about[key.Namespace]++
			}
			e.known[key] = known{faults: err.Error()} // what it was before stays in force
			e.tell(key, []string{err.Error()})
			e.ask()
			return err
		}
		p = &read
	}
	e.note(key, p)
	if !e.met {
		e.held[key] = p
		if p != nil {
			e.ask()
		}
		return nil
	}
	if p == nil {
		e.index.DelPolicy(key)
	} else {
		e.index.SetPolicy(*p)
	}
	token(e.judge)
	return nil
}

// ask has the peers be followed: there is a policy, be it one that nobody understands. The lock is held.
func (e *Enforcer) ask() {
	if !e.asked {
		e.asked = true
		close(e.peers)
	}
}

// note remembers which policies there are, what they could be about, and what is wrong with them.
func (e *Enforcer) note(key model.PolicyKey, p *model.Policy) {
	was, had := e.known[key]
	if p == nil {
		delete(e.known, key)
		if had {
			e.about[key.Namespace]--
		}
		return
	}
	if !had {
		e.about[key.Namespace]++
	}
	is := known{faults: strings.Join(p.Faults, "; ")}
	e.known[key] = is
	if is.faults != was.faults || !had && is.faults != "" {
		e.tell(key, p.Faults)
	}
}

// concerned tells whether a policy could be about pods of a namespace. The lock is held.
func (e *Enforcer) concerned(namespace string) bool { return e.about[namespace] > 0 || e.about[""] > 0 }

func (e *Enforcer) takeNamespace(o store.Object, gone bool) error {
	if gone {
		e.index.DelNamespace(o.Key.Name)
		token(e.judge)
		return nil
	}
	n, err := o.Namespace()
	if err == nil {
		e.index.SetNamespace(n)
		token(e.judge)
	}
	return err
}

func (e *Enforcer) takePod(o store.Object, gone bool) error {
	name := model.PodRef{Namespace: o.Key.Namespace, Name: o.Key.Name}
	if gone {
		delete(e.pods, name)
		e.index.DelPod(name.Namespace, name.Name)
		token(e.judge)
		return nil
	}
	p, err := o.Pod()
	if err != nil {
		return err
	}
	e.index.SetPod(p)
	token(e.judge)
	if p.Node != e.cfg.Node {
		delete(e.pods, name)
		return nil
	}
	e.pods[name] = identity{uid: p.UID, hash: p.Annotations[configHash]}
	for _, l := range e.local { // an interface may have been known before the pod
		if l.Pod.Namespace == name.Namespace && l.Pod.Name == name.Name {
			e.refreshEndpoint(l)
		}
	}
	return nil
}

func (e *Enforcer) takeNode(o store.Object, gone bool) error {
	token(e.judge)
	if gone {
		e.index.DelNode(o.Key.Name)
		return nil
	}
	n, err := o.Node()
	if err == nil {
		e.index.SetNode(n)
	}
	return err
}

// takeEndpoints takes what another node says of its pods.
func (e *Enforcer) takeEndpoints(o store.Object, gone bool) error {
	node := o.Key.Name
	if node == e.cfg.Node {
		return nil
	}
	token(e.judge)
	var all []model.WorkloadEndpoint
	if !gone {
		var err error
		if all, err = o.NodeEndpoints(); err != nil {
			return err
		}
	}
	keys := make([]model.EndpointKey, 0, len(all))
	for _, one := range all {
		keys = append(keys, one.Key())
		e.index.SetEndpoint(one)
	}
	for _, was := range e.published[node] {
		if !slices.Contains(keys, was) {
			e.index.DelEndpoint(was)
		}
	}
	if len(keys) == 0 {
		delete(e.published, node)
		return nil
	}
	e.published[node] = keys
	return nil
}
