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
	// locals counts the endpoints that this node has of it: a pod may ask for any number of networks.
	locals int32
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
	p.published = len(pubs) == 1 && pubs[0].uid == p.uid && p.uid != 0 && pubs[0].node == p.node &&
		pubs[0].ifName == usualIf && pubs[0].network == "" &&
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

// owns tells whether a publication is about this pod, and not another one of the name, and from its own node: none may
// say what the addresses of another's pods are.
func (p *pod) owns(pub published) bool {
	return (pub.uid == 0 || p.uid == 0 || pub.uid == p.uid) &&
		(pub.node == text{} || p.node == text{} || pub.node == p.node)
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

// space is a namespace, with what is in it.
type space struct {
	name       string
	known      bool // its object was seen; otherwise it only has pods
	labels     labels
	pods       map[string]*pod
	identities map[uint64]*identity
	policies   []*policy // NetworkPolicies, sorted by name
	multis     []*policy // MultiNetworkPolicies
}

// identity is what selectors see of a pod.
type identity struct {
	space  *space
	labels labels
	pods   []*pod
	next   *identity // another one with the same hash
}

// join makes the pod one of the identity's.
func (id *identity) join(p *pod) {
	p.identity, p.slot = id, int32(len(id.pods)) //nolint:gosec // no cluster has 2 billion pods
	id.pods = append(id.pods, p)
}
