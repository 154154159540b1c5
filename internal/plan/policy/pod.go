// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"hash/fnv"
	"net/netip"
	"slices"
	"unique"

	"github.com/weft-net/weft/internal/model"
)

// pod is a pod, or one that only has endpoints so far. A cluster has many, so rare fields are in rarePodFields.
type pod struct {
	identity *identity // nil: the pod's object is not known
	rare     *rarePodFields
	named    *[]model.PodPort // nil: it has no named ports
	node     text             // zero: none that is known
	uid      uint64           // a hash of it, 0 when there is none
	slot     int32            // in identity.pods
	ip       [4]byte
	// hasIP: ip is the pod's only address. published: the addresses of the status were also published, with the pod's UID.
	hasIP, published bool
	// excluded pods are no peers: they use host networking or have finished.
	excluded bool
	// locals counts its endpoints on this node: a pod may have any number of networks.
	locals int32
}

// rarePodFields are fields that most pods do not need.
type rarePodFields struct {
	addrs     []netip.Addr // of the status
	published []published
}

// published is what a node has published about a pod.
type published struct {
	uid     uint64
	node    text
	ifName  string
	network string
	addrs   []netip.Addr
}

// networkAddr is an address with its network: secondary networks may have the same addresses.
type networkAddr struct {
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

// statusIs reports whether the status has these addresses.
func (p *pod) statusIs(in []netip.Addr) bool { return slices.Equal(p.status(), in) }

func (p *pod) status() []netip.Addr {
	if p.hasIP {
		return []netip.Addr{netip.AddrFrom4(p.ip)}
	}
	if p.rare != nil {
		return p.rare.addrs
	}
	return nil
}

// defaultIf is the name of the interface whose publication is stored in compact form.
const defaultIf = "eth0"

func (p *pod) publications() []published {
	if p.published {
		return []published{{uid: p.uid, node: p.node, ifName: defaultIf, addrs: p.status()}}
	}
	if p.rare != nil {
		return p.rare.published
	}
	return nil
}

// pack stores the addresses in as little memory as they need.
func (p *pod) pack(status []netip.Addr, pubs []published) {
	p.hasIP, p.rare = false, nil
	p.published = len(pubs) == 1 && pubs[0].uid == p.uid && p.uid != 0 && pubs[0].node == p.node &&
		pubs[0].ifName == defaultIf && pubs[0].network == "" &&
		len(status) > 0 && slices.Equal(pubs[0].addrs, status)
	if p.published {
		pubs = nil
	}
	if len(pubs) == 0 && len(status) == 1 && status[0].Is4() {
		p.hasIP, p.ip = true, status[0].As4()
		return
	}
	if len(status)+len(pubs) > 0 {
		p.rare = &rarePodFields{addrs: slices.Clone(status), published: slices.Clone(pubs)}
	}
}

// owns reports whether a publication is about this pod, and not another one of that name, and from its own node: no
// node may publish the addresses of another's pods.
func (p *pod) owns(pub published) bool {
	return (pub.uid == 0 || p.uid == 0 || pub.uid == p.uid) &&
		(pub.node == text{} || p.node == text{} || pub.node == p.node)
}

// networkAddrs iterates over the addresses of a pod as a peer.
func (p *pod) networkAddrs(yield func(networkAddr) bool) {
	if p.identity == nil || p.excluded {
		return
	}
	for _, a := range p.status() {
		if !yield(networkAddr{addr: a}) {
			return
		}
	}
	if p.rare == nil {
		return
	}
	for _, pub := range p.rare.published {
		if !p.owns(pub) {
			continue
		}
		for _, a := range pub.addrs {
			if pub.network == "" && slices.Contains(p.rare.addrs, a) {
				continue
			}
			if !yield(networkAddr{pub.network, a}) {
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

// namespace is a namespace with its identities and policies.
type namespace struct {
	name       string
	known      bool // its object is known; otherwise it only has pods
	labels     labels
	pods       map[string]*pod
	identities map[uint64]*identity
	policies   []*policy // NetworkPolicies, sorted by name
	multis     []*policy // MultiNetworkPolicies
	// accounts are the labels of service accounts.
	accounts map[string]labels
}

// identity is what selectors evaluate: a namespace and labels.
type identity struct {
	namespace *namespace
	labels    labels
	pods      []*pod
	next      *identity // another one with the same hash
}

// join adds the pod to the identity.
func (id *identity) join(p *pod) {
	p.identity, p.slot = id, int32(len(id.pods)) //nolint:gosec // no cluster has 2 billion pods
	id.pods = append(id.pods, p)
}
