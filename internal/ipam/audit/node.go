// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/ipam/blocks"
	"github.com/weft-net/weft/internal/model"
)

// Allocations are what a node may allocate, and has allocated: from pools, and in host-local's directories.
type Allocations struct {
	blocks.Allocations
	Filed []Filed `json:"filed,omitempty"`
}

// Recorded is an attachment as the ledger has it.
type Recorded struct {
	model.AttachmentKey
	// Done: it was answered for; before and after, its addresses come and go.
	Done bool
	// Old: it has been there for so long that its pod's object must be known.
	Old   bool
	Pod   string // "namespace/name"
	Netns string
	Addrs []netip.Addr
	// Filed is the directory of host-local's that its addresses are from; empty where they are not, or not alone.
	Filed string
}

// Seen is an address that the kernel has in a namespace.
type Seen struct {
	Netns, IfName string
	Addr          netip.Addr
}

// Local is what a node itself knows.
type Local struct {
	Allocations
	Ledger []Recorded
	Kernel []Seen
	// Gone are the namespaces of the ledger that are not there any more.
	Gone []string
}

// Compare adds to the findings what does not agree between this node's memory, its ledger, the kernel, and the pods
// that there are. None of it is repaired from here: the agent does that, or a pod has to be made anew.
func (p *Report) Compare(l Local) {
	ledger := map[model.AttachmentKey]bool{}
	for _, r := range l.Ledger {
		ledger[r.AttachmentKey] = true
	}
	held := map[netip.Addr]bool{}
	for _, h := range l.Held {
		held[h.Addr] = true
		if h.ContainerID == blocks.OwnContainer {
			continue // the node's own end of a tunnel
		}
		if h.AttachmentKey != (model.AttachmentKey{}) && !ledger[h.AttachmentKey] {
			p.local("address %s of pool %q is held for %s, and the ledger has no such attachment: restart the agent, pods stay",
				h.Addr, h.Pool, name(h.AttachmentKey))
		}
	}
	owner := map[netip.Addr]string{}
	for _, r := range l.Ledger {
		p.compareRecord(l, r, held, owner)
	}
	p.compareFiled(l)
	known := map[Seen]bool{}
	for _, r := range l.Ledger {
		for _, a := range r.Addrs {
			known[Seen{r.Netns, r.IfName, a}] = true
		}
	}
	for _, s := range l.Kernel {
		if l.contains(s.Addr) && !held[s.Addr] && !known[s] {
			p.local(
				"address %s is on %s in %s, and this node may give it to somebody else: end what lives there, or reserve it in the pool", s.Addr, s.IfName, s.Netns,
			)
		}
	}
}

// compareRecord looks at one attachment; owner tells whose an address is by those before.
func (p *Report) compareRecord(l Local, r Recorded, held map[netip.Addr]bool, owner map[netip.Addr]string) {
	if !r.Done {
		return
	}
	if r.Old && p.pods.gone(r.Pod) {
		p.local(
			"%s is of pod %s, and there is no such pod: the agent takes it away when the runtime does not list its sandbox",
			name(r.AttachmentKey), r.Pod,
		)
	}
	gone := slices.Contains(l.Gone, r.Netns)
	for _, a := range r.Addrs {
		if !l.contains(a) {
			continue // of another IPAM
		}
		switch {
		case owner[a] != "":
			p.local("address %s is in the ledger for %s and for %s: delete one of the pods", a, owner[a], name(r.AttachmentKey))
		case !held[a]:
			p.local("address %s is in the ledger for %s, and may be given to somebody else: restart the agent, pods stay", a,
				name(r.AttachmentKey))
		}
		owner[a] = name(r.AttachmentKey)
		switch {
		case gone:
			p.local(
				"address %s is held for %s, whose namespace %s is gone: the agent takes it away when the runtime does not list its sandbox", a, name(r.AttachmentKey), r.Netns,
			)
		case r.Netns != "" && !slices.Contains(l.Kernel, Seen{r.Netns, r.IfName, a}):
			p.local("address %s is held for %s, which does not have it: delete the pod", a, name(r.AttachmentKey))
		}
	}
}

// contains reports whether an address is in a block of this node.
func (g Allocations) contains(a netip.Addr) bool {
	return slices.ContainsFunc(g.Blocks, func(b netip.Prefix) bool { return b.Contains(a) })
}

func (p *Report) local(format string, args ...any) {
	p.Findings = append(p.Findings, Finding{Object: "this node", Msg: fmt.Sprintf(format, args...)})
}

func name(k model.AttachmentKey) string {
	return "interface " + k.IfName + " of container " + k.ContainerID
}

// examinePods compares the addresses that pods say they have with pools and blocks. An address that is in two pools may
// belong to either, and says nothing.
func (p *Report) examinePods() {
	first := map[netip.Addr]string{}
	find := p.places()
	for _, pod := range p.pods.names() {
		one := p.pods[pod]
		for _, a := range one.addrs {
			pool := p.onlyPool(a)
			if pool == nil || one.over {
				continue
			}
			say := func(format string, args ...any) {
				p.Findings = append(p.Findings, Finding{Object: "Pod " + pod, Pool: pool.Name, Msg: fmt.Sprintf(format, args...)})
			}
			if was, taken := first[a]; taken {
				say("address %s of pool %q: pod %s says that it has it, too: delete one of them", a, pool.Name, was)
			}
			first[a] = pod
			if one.node == "" || slices.ContainsFunc(pool.Reserved, func(r model.ReservedAddress) bool { return r.Addr == a }) {
				continue
			}
			switch b := find.block(pool, a); {
			case b == nil:
				say("it says that it has address %s of pool %q, which is in no node's block: make the pod anew", a, pool.Name)
			case b.Node != one.node && !strings.HasPrefix(b.Ceded[a], one.node+"/"):
				say("it is on node %q and says that it has address %s, which is in block %s of node %q: make the pod anew",
					one.node, a, b.CIDR, b.Node)
			}
		}
	}
}

// onlyPool is the pool that an address is in, nil where it is in none or in several.
func (p *Report) onlyPool(a netip.Addr) *model.AddressPool {
	var found *model.AddressPool
	for i, pool := range p.Pools {
		if !slices.ContainsFunc(pool.Regions, func(r model.AddressRegion) bool { return r.CIDR.Contains(a) }) {
			continue
		}
		if found != nil {
			return nil
		}
		found = &p.Pools[i]
	}
	return found
}
