// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/ipam/blockreport"
	"github.com/weft-net/weft/internal/model"
)

// Allocations lists what a node may allocate, and has allocated: from pools, and in host-local's directories.
type Allocations struct {
	blockreport.Allocations
	HostLocal []HostLocalDir `json:"filed,omitempty"`
}

// LedgerEntry is an attachment in the ledger.
type LedgerEntry struct {
	model.AttachmentKey
	// Done: its ADD has succeeded; before and after, its addresses change.
	Done bool
	// Old: it is old enough that its pod's object must be known.
	Old   bool
	Pod   string // "namespace/name"
	Netns string
	Addrs []netip.Addr
	// HostLocalDir is host-local's directory with its addresses; empty: not all of them are host-local's.
	HostLocalDir string
}

// ObservedAddress is an address that the kernel has in a namespace.
type ObservedAddress struct {
	Netns, IfName string
	Addr          netip.Addr
}

// NodeState is a node's own state.
type NodeState struct {
	Allocations
	Ledger []LedgerEntry
	Kernel []ObservedAddress
	// Gone are the namespaces in the ledger that no longer exist.
	Gone []string
	// Marks are the marks of the node's interfaces, which name the attachments that they belong to.
	Marks []string
	// Free removes an entry from a host-local directory unless it has changed; nil: findings about it are only reported.
	Free func(ctx context.Context, dir string, e HostLocalEntry) error
}

// Compare adds findings about differences between this node's allocations, its ledger, the kernel, and pods. Fix repairs
// host-local's entries without an attachment; the agent repairs others, or a pod must be re-created.
func (p *Report) Compare(l NodeState) {
	ledger := map[model.AttachmentKey]bool{}
	for _, r := range l.Ledger {
		ledger[r.AttachmentKey] = true
	}
	held := map[netip.Addr]bool{}
	for _, h := range l.Held {
		held[h.Addr] = true
		if h.ContainerID == blockreport.OwnContainer {
			continue // the node's tunnel address
		}
		if h.AttachmentKey != (model.AttachmentKey{}) && !ledger[h.AttachmentKey] {
			p.foundOnNode("address %s of pool %q is held for %s, and the ledger has no such attachment: restart the agent, pods stay",
				h.Addr, h.Pool, name(h.AttachmentKey))
		}
	}
	owner := map[netip.Addr]string{}
	for _, r := range l.Ledger {
		p.compareRecord(l, r, held, owner)
	}
	p.compareHostLocal(l)
	known := map[ObservedAddress]bool{}
	for _, r := range l.Ledger {
		for _, a := range r.Addrs {
			known[ObservedAddress{r.Netns, r.IfName, a}] = true
		}
	}
	for _, s := range l.Kernel {
		if l.contains(s.Addr) && !held[s.Addr] && !known[s] {
			p.foundOnNode(
				"address %s is on %s in %s, and this node may allocate it again: stop what uses it, or reserve it in the pool", s.Addr, s.IfName, s.Netns,
			)
		}
	}
}

// compareRecord checks one attachment; owner has the addresses of those before.
func (p *Report) compareRecord(l NodeState, r LedgerEntry, held map[netip.Addr]bool, owner map[netip.Addr]string) {
	if !r.Done {
		return
	}
	if r.Old && p.pods.gone(r.Pod) {
		p.foundOnNode(
			"%s is of pod %s, and there is no such pod: the agent removes it when the runtime does not list its sandbox",
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
			p.foundOnNode("address %s is in the ledger for %s and for %s: delete one of the pods", a, owner[a], name(r.AttachmentKey))
		case !held[a]:
			p.foundOnNode("address %s is in the ledger for %s, and may be allocated again: restart the agent, pods stay", a,
				name(r.AttachmentKey))
		}
		owner[a] = name(r.AttachmentKey)
		switch {
		case gone:
			p.foundOnNode(
				"address %s is held for %s, whose namespace %s is gone: the agent removes it when the runtime does not list its sandbox", a, name(r.AttachmentKey), r.Netns,
			)
		case r.Netns != "" && !slices.Contains(l.Kernel, ObservedAddress{r.Netns, r.IfName, a}):
			p.foundOnNode("address %s is held for %s, which does not have it: delete the pod", a, name(r.AttachmentKey))
		}
	}
}

// contains reports whether an address is in a block of this node.
func (g Allocations) contains(a netip.Addr) bool {
	return slices.ContainsFunc(g.Blocks, func(b netip.Prefix) bool { return b.Contains(a) })
}

func (p *Report) foundOnNode(format string, args ...any) {
	p.Findings = append(p.Findings, Finding{Object: "this node", Msg: fmt.Sprintf(format, args...)})
}

func name(k model.AttachmentKey) string {
	return "interface " + k.IfName + " of container " + k.ContainerID
}

// examinePods compares the addresses that pods report with pools and blocks. An address that is in two pools may belong
// to either, and is skipped.
func (p *Report) examinePods() {
	first := map[netip.Addr]string{}
	find := p.indexBlocks()
	for _, pod := range p.pods.names() {
		one := p.pods[pod]
		for _, a := range one.addrs {
			pool := p.onlyPool(a)
			if pool == nil || one.finished {
				continue
			}
			report := func(format string, args ...any) {
				p.Findings = append(p.Findings, Finding{
					Object: "Pod " + pod, Reason: Conflict, Pool: pool.Name, Msg: fmt.Sprintf(format, args...),
				})
			}
			if was, taken := first[a]; taken {
				report("address %s of pool %q: pod %s reports it, too: delete one of them", a, pool.Name, was)
			}
			first[a] = pod
			if one.node == "" || slices.ContainsFunc(pool.Reserved, func(r model.ReservedAddress) bool { return r.Addr == a }) {
				continue
			}
			switch b := find.block(pool, a); {
			case b == nil:
				report("it reports address %s of pool %q, which is in no node's block: re-create the pod", a, pool.Name)
			case one.vm && b.CIDR.IsSingleIP():
				// A VM keeps the address of a further network when it migrates. Nodes do not route to it, and the one that
				// allocated it holds it for the VM.
			case b.Node != one.node && !strings.HasPrefix(b.Lent[a], one.node+"/"):
				report("it is on node %q and reports address %s, which is in block %s of node %q: re-create the pod",
					one.node, a, b.CIDR, b.Node)
			}
		}
	}
}

// onlyPool returns the pool that has an address, nil if none or more than one has it.
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
