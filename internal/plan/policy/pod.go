// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"hash/fnv"
	"net/netip"
	"slices"
	"unique"

	"github.com/weft-net/weft/internal/model"
)

// pod is what is kept of a pod, and of one that only has endpoints so far. A cluster has many: what is rare is in more.
type pod struct {
	identity *identity // nil: the pod's object is not known
	more     *more
	named    *[]model.PodPort // nil: it has no ports with names
	node     text             // zero: none that is known
	uid      uint64           // a hash of it, 0 when there is none
	slot     int32            // in identity.pods
	ip       [4]byte
	// hasIP: ip is the pod's only address. published: what the status says was published, too, with the pod's uid.
	hasIP, published bool
	// silent pods are nobody's peer: they use the host's network or have finished.
	silent bool
	locals uint8 // how many endpoints this node has of it
}

// more is what most pods do not have.
type more struct {
	addrs     []netip.Addr // of the status
	published []published
}

// published is what a node has published of a pod.
type published struct {
	uid     uint64
	node    text
	ifName  string
	network string
	addrs   []netip.Addr
}

// place of an address in the cluster: secondary networks may number alike.
type homed struct {
	network string
	addr    netip.Addr
}

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
	if p.identity == id && p.silent == silent && p.uid == uid && p.node == node && slices.Equal(p.ports(), in.Ports) && p.statusIs(in.IPs) {
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

func (p *pod) ports() []model.PodPort {
	if p.named == nil {
		return nil
	}
	return *p.named
}

func nodeName(name string) text {
	if name == "" {
		return text{}
	}
	return unique.Make(name)
}

// statusIs tells whether the status named these addresses.
func (p *pod) statusIs(in []netip.Addr) bool { return slices.Equal(p.status(), in) }

func (p *pod) status() []netip.Addr {
	if p.hasIP {
		return []netip.Addr{netip.AddrFrom4(p.ip)}
	}
	if p.more != nil {
		return p.more.addrs
	}
	return nil
}

// usualIf is the name of the interface whose publication needs no words of its own.
const usualIf = "eth0"

func (p *pod) publications() []published {
	if p.published {
		return []published{{uid: p.uid, node: p.node, ifName: usualIf, addrs: p.status()}}
	}
	if p.more != nil {
		return p.more.published
	}
	return nil
}

// pack notes the addresses in as little room as they need.
func (p *pod) pack(status []netip.Addr, pubs []published) {
	p.hasIP, p.more = false, nil
	p.published = len(pubs) == 1 && pubs[0].uid == p.uid && p.uid != 0 && pubs[0].node == p.node && pubs[0].ifName == usualIf && pubs[0].network == "" &&
		len(status) > 0 && slices.Equal(pubs[0].addrs, status)
	if p.published {
		pubs = nil
	}
	if len(pubs) == 0 && len(status) == 1 && status[0].Is4() {
		p.hasIP, p.ip = true, status[0].As4()
		return
	}
	if len(status)+len(pubs) > 0 {
		p.more = &more{addrs: slices.Clone(status), published: slices.Clone(pubs)}
	}
}

// owns tells whether a publication is about this pod, and not another one of the name, and from its own node: none may say what
// the addresses of another's pods are.
func (p *pod) owns(pub published) bool {
	return (pub.uid == 0 || p.uid == 0 || pub.uid == p.uid) && (pub.node == text{} || p.node == text{} || pub.node == p.node)
}

// homes are the addresses of a pod that peers may mean.
func (p *pod) homes(yield func(homed) bool) {
	if p.identity == nil || p.silent {
		return
	}
	for _, a := range p.status() {
		if !yield(homed{addr: a}) {
			return
		}
	}
	if p.more == nil {
		return
	}
	for _, pub := range p.more.published {
		if !p.owns(pub) {
			continue
		}
		for _, a := range pub.addrs {
			if pub.network == "" && slices.Contains(p.more.addrs, a) {
				continue
			}
			if !yield(homed{pub.network, a}) {
				return
			}
		}
	}
}

func hashUID(uid string) uint64 {
	if uid == "" {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(uid))
	return max(h.Sum64(), 1)
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
	i := slices.IndexFunc(pubs, func(o published) bool { return o.uid == one.uid && o.node == one.node && o.ifName == one.ifName })
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
func (c *cluster) localPod(key model.EndpointKey, n int) {
	s := c.space(key.Namespace)
	p := s.pods[key.Pod]
	if p == nil {
		p = c.newPod(s, key.Pod)
	}
	c.withdraw(p)
	p.locals = uint8(int(p.locals) + n)
	c.announce(p)
	c.dropPod(s, key.Pod)
}
