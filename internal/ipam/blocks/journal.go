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
	"github.com/weft-net/weft/internal/model"
)

const (
	journalName    = "blocks.json"
	journalVersion = 1
)

// journal is what an engine remembers over its own death.
type journal struct {
	Version int            `json:"version"`
	Node    string         `json:"node"`
	Blocks  []journalBlock `json:"blocks"`
	// Sticky are the addresses of IPAMClaims.
	Sticky []journalSticky `json:"sticky,omitempty"`
	// Pools are those that blocks are of, and those of the cluster's network: so that an engine that starts knows what is
	// reserved, and what to choose from, also when the store does not answer.
	Pools []model.AddressPool `json:"pools,omitempty"`
	// Strangers are other machines that run as this node: for people.
	Strangers []string `json:"strangers,omitempty"`
}

type journalBlock struct {
	Pool   string       `json:"pool"`
	CIDR   netip.Prefix `json:"cidr"`
	Parent netip.Prefix `json:"parent"`
	Claim  string       `json:"claim"`
	Stands standing     `json:"stands"`
	Away   []netip.Addr `json:"away,omitempty"`
}

type journalSticky struct {
	Pool  string     `json:"pool"`
	Addr  netip.Addr `json:"addr"`
	Claim string     `json:"claim"`
}

// journalFile writes what an engine that starts must know.
type journalFile struct {
	cfg       *Config
	mem       *memory
	namesakes *namesakes

	writing sync.Mutex // taken before the memory's
}

func (jf *journalFile) journalPath() string { return filepath.Join(jf.cfg.Dir, journalName) }

// load reads the journal. One of another node, or of a newer program, is refused: what it says must not be forgotten.
func (jf *journalFile) load() error {
	path := jf.journalPath()
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return model.Faultf(model.CodeIO, "choose a --state-dir that can be read", "journal of address blocks: %w", err)
	}
	var j journal
	if err := json.Unmarshal(b, &j); err != nil {
		return model.Faultf(model.CodeDecode, "move it away: the cluster's store tells which blocks this node has",
			"journal of address blocks %s: %w", path, err)
	}
	if j.Version > journalVersion {
		return model.Faultf(model.CodeIO, "use the newer program",
			"journal of address blocks %s: version %d is newer than %d", path, j.Version, journalVersion)
	}
	if j.Node != jf.cfg.Node {
		return model.Faultf(model.CodeIO, "give this node its old name, or choose another --state-dir",
			"journal of address blocks %s is of node %q, this is node %q", path, j.Node, jf.cfg.Node)
	}
	for _, spec := range j.Pools {
		if jf.mem.catalog.put(spec) {
			jf.mem.catalog.known = true
		}
		if slices.ContainsFunc(j.Blocks, func(b journalBlock) bool { return b.Pool == spec.Name }) {
			jf.mem.pool(spec.Name).read(spec)
		}
	}
	for _, jb := range j.Blocks {
		b := &block{cidr: jb.CIDR, parent: jb.Parent, claim: jb.Claim, stands: jb.Stands, away: map[netip.Addr]bool{}}
		for _, a := range jb.Away {
			b.away[a] = true
		}
		jf.mem.pool(jb.Pool).put(jb.CIDR, b)
	}
	for _, s := range j.Sticky {
		jf.mem.pool(s.Pool).held[s.Addr] = holder{claim: s.Claim}
	}
	return nil
}

// save writes what the engine knows now into the journal; the caller does not hold the lock. It is on the disk when
// save returns: a return that is begun must not be forgotten, whatever dies.
func (jf *journalFile) save() error {
	jf.writing.Lock()
	defer jf.writing.Unlock()
	text, err := json.MarshalIndent(jf.snapshot(), "", " ")
	if err == nil {
		err = jf.cfg.Step.At("before journal")
	}
	if err == nil {
		err = os.MkdirAll(jf.cfg.Dir, 0o700)
	}
	if err == nil {
		err = atomicfile.Write(jf.journalPath(), text, 0o600, atomicfile.Durable)
	}
	if err == nil {
		err = jf.cfg.Step.At("after journal")
	}
	if err != nil {
		jf.mem.mu.Lock()
		jf.mem.unsaved = true
		jf.mem.mu.Unlock()
		return fmt.Errorf("journal of address blocks %s: %w", jf.journalPath(), err)
	}
	return nil
}

func (jf *journalFile) snapshot() journal {
	jf.mem.mu.Lock()
	defer jf.mem.mu.Unlock()
	jf.mem.unsaved = false
	j := journal{
		Version: journalVersion, Node: jf.cfg.Node, Blocks: []journalBlock{}, Strangers: jf.namesakes.toPeople(),
		Pools: jf.mem.catalog.all(),
	}
	for _, p := range jf.mem.pools {
		if _, in := jf.mem.catalog.pools[p.name]; !in && len(p.spec.Regions) > 0 {
			j.Pools = append(j.Pools, p.spec)
		}
		for _, b := range p.order {
			if b.stands == lost {
				continue
			}
			jb := journalBlock{Pool: p.name, CIDR: b.cidr, Parent: b.parent, Claim: b.claim, Stands: b.stands}
			for a := range b.away {
				jb.Away = append(jb.Away, a)
			}
			slices.SortFunc(jb.Away, netip.Addr.Compare)
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

// keepBack has nobody here get an address that is about to be this node's, whatever becomes of that, but the claim
// whose it is.
func (jf *journalFile) keepBack(p *pool, a netip.Addr, claim string) error {
	jf.mem.mark(p, a, claim)
	return jf.saveMarks()
}

// saveMarks writes the journal if it lacks something, such as a mark that was noted and not written: a write to the
// store that makes an address this node's may be the last thing that this engine does, and the next one must not give
// it to anybody else.
func (jf *journalFile) saveMarks() error {
	jf.mem.mu.Lock()
	unsaved := jf.mem.unsaved
	jf.mem.mu.Unlock()
	if !unsaved {
		return nil
	}
	return jf.save()
}
