// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/ipam/duplicatenode"
	"github.com/weft-net/weft/internal/model"
)

const journalName = "blocks.json"

// JournalVersion is the format of the journal that this program writes. One of a newer format is rejected.
const JournalVersion = 1

// journal is what an engine restores after a restart.
type journal struct {
	Version int            `json:"version"`
	Node    string         `json:"node"`
	Blocks  []journalBlock `json:"blocks"`
	// Sticky are the addresses of claims.
	Sticky []journalSticky `json:"sticky,omitempty"`
	// Pools are the pools of the blocks, and those of the cluster's network: so that an engine that starts knows
	// reservations and pools also when the datastore does not answer.
	Pools []model.AddressPool `json:"pools,omitempty"`
	// DuplicateNodes are the machine IDs of other hosts that run as this node, for `weft doctor`.
	DuplicateNodes []string `json:"strangers,omitempty"`
}

type journalBlock struct {
	Pool   string       `json:"pool"`
	CIDR   netip.Prefix `json:"cidr"`
	Parent netip.Prefix `json:"parent"`
	Claim  string       `json:"claim"`
	State  blockState   `json:"stands"`
	Lent   []netip.Addr `json:"away,omitempty"`
}

type journalSticky struct {
	Pool  string     `json:"pool"`
	Addr  netip.Addr `json:"addr"`
	Claim string     `json:"claim"`
}

// journalFile reads and writes the journal.
type journalFile struct {
	cfg        *Config
	state      *nodeState
	duplicates *duplicatenode.Detector

	writing sync.Mutex // locked before the state's
}

func (jf *journalFile) journalPath() string { return filepath.Join(jf.cfg.Dir, journalName) }

// load reads the journal. One of another node, or of a newer program, is an error: its content must not be lost.
func (jf *journalFile) load() error {
	path := jf.journalPath()
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return model.Errorf(model.CodeIO, "choose a --state-dir that can be read", "journal of address blocks: %w", err)
	}
	var j journal
	if err := json.Unmarshal(b, &j); err != nil {
		return model.Errorf(model.CodeDecode, "move it away: the datastore has this node's blocks",
			"journal of address blocks %s: %w", path, err)
	}
	if j.Version > JournalVersion {
		return model.Errorf(model.CodeIO, "use the newer program",
			"journal of address blocks %s: version %d is newer than %d", path, j.Version, JournalVersion)
	}
	if j.Node != jf.cfg.Node {
		return model.Errorf(model.CodeIO, "give this node its old name, or choose another --state-dir",
			"journal of address blocks %s is of node %q, this is node %q", path, j.Node, jf.cfg.Node)
	}
	for _, spec := range j.Pools {
		jf.state.catalog.Restore(spec)
		if slices.ContainsFunc(j.Blocks, func(b journalBlock) bool { return b.Pool == spec.Name }) {
			jf.state.poolLocked(spec.Name).setSpecLocked(spec)
		}
	}
	for _, jb := range j.Blocks {
		b := &block{cidr: jb.CIDR, parent: jb.Parent, claim: jb.Claim, state: jb.State, lent: map[netip.Addr]bool{}}
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

// save writes the current state into the journal, durably: a release that has begun must survive a crash of the host.
func (jf *journalFile) save() error {
	jf.writing.Lock()
	defer jf.writing.Unlock()
	text, err := json.MarshalIndent(jf.snapshot(), "", " ")
	if err == nil {
		err = jf.cfg.Failpoint.At("before journal")
	}
	if err == nil {
		err = os.MkdirAll(jf.cfg.Dir, 0o700)
	}
	if err == nil {
		err = atomicfile.Write(jf.journalPath(), text, 0o600, atomicfile.Durable)
	}
	if err == nil {
		err = jf.cfg.Failpoint.At("after journal")
	}
	if err != nil {
		jf.state.mu.Lock()
		jf.state.unsaved = true
		jf.state.mu.Unlock()
		return fmt.Errorf("journal of address blocks %s: %w", jf.journalPath(), err)
	}
	return nil
}

func (jf *journalFile) snapshot() journal {
	jf.state.mu.Lock()
	defer jf.state.mu.Unlock()
	jf.state.unsaved = false
	j := journal{
		Version: JournalVersion, Node: jf.cfg.Node, Blocks: []journalBlock{}, DuplicateNodes: jf.duplicates.Report(),
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
			jb := journalBlock{Pool: p.name, CIDR: b.cidr, Parent: b.parent, Claim: b.claim, State: b.state}
			for a := range b.lent {
				jb.Lent = append(jb.Lent, a)
			}
			slices.SortFunc(jb.Lent, netip.Addr.Compare)
			j.Blocks = append(j.Blocks, jb)
		}
		for a, h := range p.held {
			if h.claim != "" {
				j.Sticky = append(j.Sticky, journalSticky{p.name, a, h.claim})
			}
		}
	}
	slices.SortFunc(j.Pools, func(a, b model.AddressPool) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(j.Blocks, func(a, b journalBlock) int {
		if n := strings.Compare(a.Pool, b.Pool); n != 0 {
			return n
		}
		return a.CIDR.Addr().Compare(b.CIDR.Addr())
	})
	slices.SortFunc(j.Sticky, func(a, b journalSticky) int { return a.Addr.Compare(b.Addr) })
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

// DuplicateNodes returns the IDs of other hosts that the agent of that state directory has seen to claim addresses as its
// node. An agent without blocks has no journal of them: fs.ErrNotExist.
func DuplicateNodes(stateDir string) ([]string, error) {
	b, err := os.ReadFile(filepath.Join(stateDir, "blocks", journalName))
	var j journal
	if err == nil {
		err = json.Unmarshal(b, &j)
	}
	return j.DuplicateNodes, err
}
