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

// configHash is, on the pod that stands for a static one in the API, the uid by which the kubelet knows it.
const configHash = "kubernetes.io/config.hash"

// Teller tells people about policies, behind the caller's back.
type Teller interface {
	// Faults says what of a policy could not be understood; none: all of it is.
	Faults(key model.PolicyKey, faults []string)
}

// feed takes in what the store tells: policies and namespaces, and once there is a policy everything that it can be
// about.
type feed struct {
	cfg     *Config
	log     *slog.Logger
	desired *desired // its lock guards what follows

	// held are policies that came before the peers were known; nil for a deleted one.
	held map[model.PolicyKey]*model.Policy
	// published are the interfaces of other nodes, by node.
	published map[string][]model.EndpointKey
	// crowd is how many pods there are, sized how many Sized was told of.
	crowd, sized int
}

// followPolicies follows policies and namespaces until ctx ends.
func (fe *feed) followPolicies(ctx context.Context) error {
	return fe.follow(ctx, func() { fe.desired.told = true },
		store.NetworkPolicies(), store.ClusterNetworkPolicies(), store.MultiNetworkPolicies(), store.Namespaces())
}

// watchPause is when a store is asked again that could not be read.
const watchPause = time.Second

// followPeers follows everything that policies can be about, once there is one.
func (fe *feed) followPeers(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-fe.desired.peers:
	}
	return fe.follow(ctx, fe.meet, store.Pods(), store.Nodes(), store.NodeEndpoints())
}

// follow takes in what happens to objects. A store that cannot be read when this begins is asked again: until then no
// pod is let in that a policy could be about.
func (fe *feed) follow(ctx context.Context, synced func(), kinds ...store.Kind) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := fe.cfg.Source.Watch(ctx, kinds...)
	for ; err != nil; events, err = fe.cfg.Source.Watch(ctx, kinds...) {
		if ctx.Err() != nil {
			return nil
		}
		fe.log.Error("policies cannot be read", "err", err)
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
			fe.take(ev)
		}
		fe.desired.changed()
		fe.desired.mu.Unlock()
		fe.desired.due.Notify()
	}
	return nil
}

// meet brings the policies into force that waited for the peers. The lock is held.
func (fe *feed) meet() {
	fe.desired.met = true
	for key, p := range fe.held {
		if p == nil {
			fe.desired.index.DelPolicy(key)
		} else {
			fe.desired.index.SetPolicy(*p)
		}
	}
	fe.held = nil
	fe.desired.news.Notify()
	fe.desired.judge.Notify()
}

// take gives the index an event. The lock is held.
func (fe *feed) take(ev store.Event) {
	key, gone := ev.Object.Key, ev.Type == store.Deleted
	var err error
	switch {
	case ev.Type == store.Faulty:
		err = ev.Err
	case key.Of(store.NetworkPolicies()), key.Of(store.ClusterNetworkPolicies()), key.Of(store.MultiNetworkPolicies()):
		err = fe.takePolicy(ev.Object, gone)
	case key.Of(store.Namespaces()):
		err = fe.takeNamespace(ev.Object, gone)
	case key.Of(store.Pods()):
		fe.crowded(ev.Type)
		err = fe.takePod(ev.Object, gone)
	case key.Of(store.Nodes()):
		err = fe.takeNode(ev.Object, gone)
	case key.Of(store.NodeEndpoints()):
		err = fe.takeEndpoints(ev.Object, gone)
	}
	if err != nil {
		fe.log.Warn("left out, or kept as it was before", "object", key.String(), "err", err)
	}
}

// crowded says how many pods there are, but not for each of them.
func (fe *feed) crowded(what store.EventType) {
	switch what {
	case store.Added:
		fe.crowd++
	case store.Deleted:
		fe.crowd--
	}
	if d := fe.crowd - fe.sized; fe.cfg.Sized != nil && (d >= 500 || d <= -500) {
		fe.sized = fe.crowd
		fe.cfg.Sized(fe.crowd)
	}
}

func (fe *feed) takePolicy(o store.Object, gone bool) error {
	key := model.PolicyKey{Kind: model.PolicyKind(o.Key.Kind), Namespace: o.Key.Namespace, Name: o.Key.Name}
	var p *model.Policy
	if !gone {
		read, err := o.Policy()
		if err != nil {
			if _, had := fe.desired.known[key]; !had {
				fe.desired.about[key.Namespace]++
			}
			fe.desired.known[key] = known{faults: err.Error()} // what it was before stays in force
			fe.tell(key, []string{err.Error()})
			fe.desired.ask()
			return err
		}
		p = &read
	}
	fe.note(key, p)
	if !fe.desired.met {
		fe.held[key] = p
		if p != nil {
			fe.desired.ask()
		}
		return nil
	}
	if p == nil {
		fe.desired.index.DelPolicy(key)
	} else {
		fe.desired.index.SetPolicy(*p)
	}
	fe.desired.judge.Notify()
	return nil
}

// note remembers which policies there are, what they could be about, and what is wrong with them.
func (fe *feed) note(key model.PolicyKey, p *model.Policy) {
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
	is := known{faults: strings.Join(p.Faults, "; ")}
	fe.desired.known[key] = is
	if is.faults != was.faults || !had && is.faults != "" {
		fe.tell(key, p.Faults)
	}
}

func (fe *feed) takeNamespace(o store.Object, gone bool) error {
	if gone {
		fe.desired.index.DelNamespace(o.Key.Name)
		fe.desired.judge.Notify()
		return nil
	}
	n, err := o.Namespace()
	if err == nil {
		fe.desired.index.SetNamespace(n)
		fe.desired.judge.Notify()
	}
	return err
}

func (fe *feed) takePod(o store.Object, gone bool) error {
	name := model.PodRef{Namespace: o.Key.Namespace, Name: o.Key.Name}
	if gone {
		delete(fe.desired.pods, name)
		fe.desired.index.DelPod(name.Namespace, name.Name)
		fe.desired.judge.Notify()
		return nil
	}
	p, err := o.Pod()
	if err != nil {
		return err
	}
	fe.desired.index.SetPod(p)
	fe.desired.judge.Notify()
	if p.Node != fe.cfg.Node {
		delete(fe.desired.pods, name)
		return nil
	}
	fe.desired.pods[name] = identity{uid: p.UID, hash: p.Annotations[configHash]}
	for _, l := range fe.desired.local { // an interface may have been known before the pod
		if l.Pod.Namespace == name.Namespace && l.Pod.Name == name.Name {
			fe.desired.refreshEndpoint(l)
		}
	}
	return nil
}

func (fe *feed) takeNode(o store.Object, gone bool) error {
	fe.desired.judge.Notify()
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

// takeEndpoints takes what another node says of its pods.
func (fe *feed) takeEndpoints(o store.Object, gone bool) error {
	node := o.Key.Name
	if node == fe.cfg.Node {
		return nil
	}
	fe.desired.judge.Notify()
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
		fe.desired.index.SetEndpoint(one)
	}
	for _, was := range fe.published[node] {
		if !slices.Contains(keys, was) {
			fe.desired.index.DelEndpoint(was)
		}
	}
	if len(keys) == 0 {
		delete(fe.published, node)
		return nil
	}
	fe.published[node] = keys
	return nil
}

// tell tells what is wrong with a policy. The lock is held.
func (fe *feed) tell(key model.PolicyKey, faults []string) {
	if len(faults) > 0 {
		fe.log.Warn("policy is not understood in full; what is not allows nothing", "policy", key.String(), "faults", faults)
	}
	if fe.cfg.Told != nil {
		fe.cfg.Told.Faults(key, faults)
	}
}
