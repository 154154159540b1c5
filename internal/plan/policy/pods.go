// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
)

// podIndex is the cluster's namespaces with their pods, which it finds by name, by labels and by address.
type podIndex struct {
	namespaces map[string]*namespace
	holders    holders
	observer   observer
	named      map[*pod]string // the names of pods that were asked for by their addresses; some may be wrong by now
}

func newPodIndex() *podIndex {
	return &podIndex{namespaces: map[string]*namespace{}, holders: newHolders(), named: map[*pod]string{}}
}

// setPod reports whether anything changed.
func (x *podIndex) setPod(in model.Pod) bool {
	s := x.namespace(in.Namespace)
	p := s.pods[in.Name]
	if p == nil {
		p = x.newPod(s, in.Name)
	}
	id := x.identity(s, labelsOf(in))
	silent := in.HostNetwork || in.Phase == "Succeeded" || in.Phase == "Failed"
	uid, node := hashUID(in.UID), nodeName(in.Node)
	if p.identity == id && p.excluded == silent && p.uid == uid && p.node == node && slices.Equal(p.ports(), in.Ports) &&
		p.statusIs(in.IPs) {
		return false
	}
	x.withdraw(p)
	pubs := p.publications()
	if p.identity != id {
		if p.identity != nil {
			x.leave(p)
		}
		id.join(p)
	}
	p.excluded, p.uid, p.node, p.named = silent, uid, node, nil
	if len(in.Ports) > 0 {
		ports := slices.Clone(in.Ports)
		p.named = &ports
	}
	p.pack(in.IPs, pubs)
	x.announce(p)
	return true
}

// labelsOf returns a pod's labels, and the one with its service account, which Calico derives (and leaves out where the
// name is too long for a label).
func labelsOf(in model.Pod) map[string]string {
	const tooLong = 63
	out := in.Labels
	if _, own := out[model.AccountLabel]; own || in.ServiceAccount != "" {
		if out = maps.Clone(out); out == nil {
			out = map[string]string{}
		}
		delete(out, model.AccountLabel)
		if in.ServiceAccount != "" && len(in.ServiceAccount) < tooLong {
			out[model.AccountLabel] = in.ServiceAccount
		}
	}
	return out
}

// delPod reports whether there was such a pod.
func (x *podIndex) delPod(namespace, name string) bool {
	s := x.namespaces[namespace]
	if s == nil || s.pods[name] == nil || s.pods[name].identity == nil {
		return false
	}
	p := s.pods[name]
	x.withdraw(p)
	pubs := p.publications()
	x.leave(p)
	p.excluded, p.uid, p.node, p.named = false, 0, text{}, nil
	p.pack(nil, pubs)
	x.dropPod(s, name)
	return true
}

func (x *podIndex) newPod(s *namespace, name string) *pod {
	p := &pod{}
	if s.pods == nil {
		s.pods = map[string]*pod{}
	}
	s.pods[name] = p
	return p
}

// dropPod deletes a pod without object and endpoints.
func (x *podIndex) dropPod(s *namespace, name string) {
	if p := s.pods[name]; p != nil && p.identity == nil && p.rare == nil && !p.published && p.locals == 0 {
		delete(s.pods, name)
		x.dropNamespace(s)
	}
}

func (x *podIndex) pod(namespace, name string) *pod {
	if s := x.namespaces[namespace]; s != nil {
		return s.pods[name]
	}
	return nil
}

// publish stores what a node has published, or, without addresses, that it was withdrawn.
func (x *podIndex) publish(key model.EndpointKey, network string, addrs []netip.Addr) {
	s := x.namespace(key.Namespace)
	p := s.pods[key.Pod]
	if p == nil {
		p = x.newPod(s, key.Pod)
	}
	one := published{uid: hashUID(key.UID), node: nodeName(key.Node), ifName: key.IfName, network: network, addrs: addrs}
	status, pubs := p.status(), slices.Clone(p.publications())
	i := slices.IndexFunc(pubs, func(o published) bool {
		return o.uid == one.uid && o.node == one.node && o.ifName == one.ifName
	})
	switch known := i >= 0; {
	case known && pubs[i].network == network && slices.Equal(pubs[i].addrs, addrs):
		return
	case known && len(addrs) > 0:
		pubs[i] = one
	case known:
		pubs = slices.Delete(pubs, i, i+1)
	case len(addrs) > 0:
		pubs = append(pubs, one)
	}
	x.withdraw(p)
	p.pack(status, pubs)
	x.announce(p)
	x.dropPod(s, key.Pod)
}

// withdraw removes a pod's elements from all groups, before the pod changes.
func (x *podIndex) withdraw(p *pod) {
	for h := range p.networkAddrs {
		x.holders.remove(h, p)
	}
	x.observer.podChanged(p, false)
}

// announce adds them again.
func (x *podIndex) announce(p *pod) {
	x.observer.podChanged(p, true)
	for h := range p.networkAddrs {
		x.holders.add(h, p)
	}
}

// localPod counts the endpoints that this node has of a pod.
func (x *podIndex) localPod(key model.EndpointKey, n int32) {
	s := x.namespace(key.Namespace)
	p := s.pods[key.Pod]
	if p == nil {
		p = x.newPod(s, key.Pod)
	}
	x.withdraw(p)
	p.locals += n
	x.announce(p)
	x.dropPod(s, key.Pod)
}

// podAt returns the pod that has an address.
func (x *podIndex) podAt(h networkAddr) (model.PodRef, bool) {
	for p := range x.holders.of(h) {
		s := p.identity.namespace
		if name, ok := x.named[p]; ok && s.pods[name] == p {
			return model.PodRef{Namespace: s.name, Name: name}, true
		}
		for name, o := range s.pods { // pods do not have their names: of 100,000 pods few are asked for
			if o == p {
				if len(x.named) >= maxNamed {
					clear(x.named)
				}
				x.named[p] = name
				return model.PodRef{Namespace: s.name, Name: name}, true
			}
		}
	}
	return model.PodRef{}, false
}

// maxNamed is how many names of pods are remembered, about a megabyte.
const maxNamed = 16384
