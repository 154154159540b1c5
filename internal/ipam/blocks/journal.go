// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/weft-net/weft/internal/ipam/blockjournal"
	"github.com/weft-net/weft/internal/ipam/duplicatenode"
	"github.com/weft-net/weft/internal/model"
)

// journalFile keeps the state in the journal.
type journalFile struct {
	cfg        *Config
	state      *nodeState
	duplicates *duplicatenode.Detector

	writing sync.Mutex // locked before the state's
}

// load restores the state from the journal.
func (jf *journalFile) load() error {
	j, err := blockjournal.Read(jf.cfg.Dir, jf.cfg.Node)
	if err != nil {
		return err
	}
	for _, spec := range j.Pools {
		jf.state.catalog.Restore(spec)
		if slices.ContainsFunc(j.Blocks, func(b blockjournal.Block) bool { return b.Pool == spec.Name }) {
			jf.state.poolLocked(spec.Name).setSpecLocked(spec)
		}
	}
	for _, jb := range j.Blocks {
		b := &block{cidr: jb.CIDR, parent: jb.Parent, claim: jb.Claim, state: blockState(jb.State), lent: map[netip.Addr]bool{}}
		for _, a := range jb.Lent {
			b.lent[a] = true
		}
		jf.state.poolLocked(jb.Pool).setBlockLocked(jb.CIDR, b)
	}
	for _, s := range j.Sticky {
		jf.state.poolLocked(s.Pool).held[s.Addr] = holder{claim: s.Claim}
	}
	return nil
}

// save writes the current state into the journal, durably.
func (jf *journalFile) save() error {
	jf.writing.Lock()
	defer jf.writing.Unlock()
	j := jf.snapshot()
	err := jf.cfg.Failpoint.At("before journal")
	if err == nil {
		err = blockjournal.Write(jf.cfg.Dir, j)
	}
	if err == nil {
		err = jf.cfg.Failpoint.At("after journal")
	}
	if err != nil {
		jf.state.mu.Lock()
		jf.state.unsaved = true
		jf.state.mu.Unlock()
		return fmt.Errorf("journal of address blocks %s: %w", blockjournal.Path(jf.cfg.Dir), err)
	}
	return nil
}

func (jf *journalFile) snapshot() blockjournal.Journal {
	jf.state.mu.Lock()
	defer jf.state.mu.Unlock()
	jf.state.unsaved = false
	j := blockjournal.Journal{
		Node: jf.cfg.Node, Blocks: []blockjournal.Block{}, DuplicateNodes: jf.duplicates.Report(),
		Pools: jf.state.catalog.All(),
	}
	for _, p := range jf.state.pools {
		if _, in := jf.state.catalog.Get(p.name); !in && len(p.spec.Regions) > 0 {
			j.Pools = append(j.Pools, p.spec)
		}
		for _, b := range p.order {
			if b.state == lost {
				continue
			}
			jb := blockjournal.Block{
				Pool: p.name, CIDR: b.cidr, Parent: b.parent, Claim: b.claim, State: string(b.state),
			}
			for a := range b.lent {
				jb.Lent = append(jb.Lent, a)
			}
			slices.SortFunc(jb.Lent, netip.Addr.Compare)
			j.Blocks = append(j.Blocks, jb)
		}
		for a, h := range p.held {
			if h.claim != "" {
				j.Sticky = append(j.Sticky, blockjournal.Sticky{Pool: p.name, Addr: a, Claim: h.claim})
			}
		}
	}
	slices.SortFunc(j.Pools, func(a, b model.AddressPool) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(j.Blocks, func(a, b blockjournal.Block) int {
		if n := strings.Compare(a.Pool, b.Pool); n != 0 {
			return n
		}
		return a.CIDR.Addr().Compare(b.CIDR.Addr())
	})
	slices.SortFunc(j.Sticky, func(a, b blockjournal.Sticky) int { return a.Addr.Compare(b.Addr) })
	return j
}

// reserveForClaim makes sure that this node allocates an address to no attachment but the claim's, before it becomes
// this node's.
func (jf *journalFile) reserveForClaim(p *pool, a netip.Addr, claim string) error {
	jf.state.markClaim(p, a, claim)
	return jf.saveIfUnsaved()
}

// saveIfUnsaved writes the journal if it is out of date. An engine may end right after a datastore write that makes a
// claimed address this node's, and the next engine must know the claim.
func (jf *journalFile) saveIfUnsaved() error {
	jf.state.mu.Lock()
	unsaved := jf.state.unsaved
	jf.state.mu.Unlock()
	if !unsaved {
		return nil
	}
	return jf.save()
}
