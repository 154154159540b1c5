// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
)

// setPod reports whether anything is new.
func (c *cluster) setPod(in model.Pod) bool {
	s := c.space(in.Namespace)
	p := s.pods[in.Name]
	if p == nil {
		p = c.newPod(s, in.Name)
	}
	id := c.identity(s, in.Labels)
	silent := in.HostNetwork || in.Phase == "Succeeded" || in.Phase == "Failed"
	uid, node := hashUID(in.UID), nodeName(in.Node)
	if p.identity == id && p.silent == silent && p.uid == uid && p.node == node && slices.Equal(p.ports(), in.Ports) &&
		p.statusIs(in.IPs) {
		return false
	}
	c.withdraw(p)
	pubs := p.publications()
	if p.identity != id {
		if p.identity != nil {
			c.leave(p)
		}
		id.join(p)
	}
	p.silent, p.uid, p.node, p.named = silent, uid, node, nil
	if len(in.Ports) > 0 {
		ports := slices.Clone(in.Ports)
		p.named = &ports
	}
	p.pack(in.IPs, pubs)
	c.announce(p)
	return true
}

// delPod reports whether there was such a pod.
func (c *cluster) delPod(namespace, name string) bool {
	s := c.spaces[namespace]
	if s == nil || s.pods[name] == nil || s.pods[name].identity == nil {
		return false
	}
	p := s.pods[name]
	c.withdraw(p)
	pubs := p.publications()
	c.leave(p)
	p.silent, p.uid, p.node, p.named = false, 0, text{}, nil
	p.pack(nil, pubs)
	c.dropPod(s, name)
	return true
}

func (c *cluster) newPod(s *space, name string) *pod {
	p := &pod{}
	if s.pods == nil {
		s.pods = map[string]*pod{}
	}
	s.pods[name] = p
	return p
}

// dropPod forgets a pod that nothing is known of.
func (c *cluster) dropPod(s *space, name string) {
	if p := s.pods[name]; p != nil && p.identity == nil && p.more == nil && !p.published && p.locals == 0 {
		delete(s.pods, name)
		c.dropSpace(s)
	}
}

func (c *cluster) pod(namespace, name string) *pod {
	if s := c.spaces[namespace]; s != nil {
		return s.pods[name]
	}
	return nil
}

// publish notes what a node has published, or, without addresses, that it has taken that back.
func (c *cluster) publish(key model.EndpointKey, network string, addrs []netip.Addr) {
	s := c.space(key.Namespace)
	p := s.pods[key.Pod]
	if p == nil {
		p = c.newPod(s, key.Pod)
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
	c.withdraw(p)
	p.pack(status, pubs)
	c.announce(p)
	c.dropPod(s, key.Pod)
}

// withdraw takes what a pod brings out of all groups, before the pod changes.
func (c *cluster) withdraw(p *pod) {
	for h := range p.homes {
		c.holders.remove(h, p)
	}
	c.follower.brings(p, false)
}

// announce brings it back.
func (c *cluster) announce(p *pod) {
	c.follower.brings(p, true)
	for h := range p.homes {
		c.holders.add(h, p)
	}
}

// localPod counts the endpoints that this node has of a pod.
func (c *cluster) localPod(key model.EndpointKey, n int32) {
	s := c.space(key.Namespace)
	p := s.pods[key.Pod]
	if p == nil {
		p = c.newPod(s, key.Pod)
	}
	c.withdraw(p)
	p.locals += n
	c.announce(p)
	c.dropPod(s, key.Pod)
}

// podAt is the pod that has an address.
func (c *cluster) podAt(h homed) (model.PodRef, bool) {
	for p := range c.holders.of(h) {
		s := p.identity.space
		for name, o := range s.pods {
			if o == p {
				return model.PodRef{Namespace: s.name, Name: name}, true
			}
		}
	}
	return model.PodRef{}, false
}
