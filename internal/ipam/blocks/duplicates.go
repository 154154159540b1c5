// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"encoding/json"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/ipam/claims"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

// Two hosts may run as one node by mistake: a clone, or a reinstalled host whose predecessor still runs. They must not
// allocate from the same blocks. So a claim has the machine ID of its host, and a block of another machine ID with this
// node's name counts as another node's. A host that sees such a block renews the claims of its own blocks, and the
// other host does the same in turn: the changing claims prove that both are alive. A host whose claims have not changed
// for Config.NodeGoneAfter was replaced by this one.

// maxMismatches is how many unknown claims with this host's machine ID an engine accepts for a block before it assumes
// a second host: requests of an engine that was killed may arrive late.
const maxMismatches = 3

// maxOwnClaims bounds how many of its own claims an engine remembers.
const maxOwnClaims = 4096

// duplicateNode is another host that runs, or ran, as this node.
type duplicateNode struct {
	// claims are its last known claims, by claimKey.
	claims   map[string]string
	lastSeen time.Time // when a claim of it last changed
	alive    bool      // a claim of it has changed since this engine started
	// renewed is when this node's claims were last renewed for it to see.
	renewed time.Time
}

// machineIDOf returns the machine ID in the borrower of a lent address: the part of the claim after the point.
func machineIDOf(claim string) string {
	claim, _, _ = strings.Cut(claim, claims.EntrySeparator)
	_, machineID, _ := strings.Cut(claim, ".")
	return machineID
}

// duplicateNodes distinguishes claims of this host from those of other hosts that run as the same node.
type duplicateNodes struct {
	cfg   *Config
	kick  notify.Chan
	clock *clock

	mu         sync.Mutex
	ownClaims  map[string]bool // claims that this engine wrote
	mismatches map[string]int  // unknown claims seen, by claimKey
	// nodes are the other hosts, by machine ID; reported are those that the journal names.
	nodes    map[string]*duplicateNode
	reported []string
}

// withMachineID adds the machine ID to a claim of a borrowed address, whose object has no field for it.
func (n *duplicateNodes) withMachineID(claim string) string {
	if n.cfg.MachineID == "" {
		return claim
	}
	return claim + "." + n.cfg.MachineID
}

// owns reports whether a block is this host's.
func (n *duplicateNodes) owns(spec model.AddressBlock) bool {
	return spec.Node == n.cfg.Node && !n.claimedByDuplicate(spec.MachineID, claimKey(spec.Pool, spec.CIDR), spec.Claim)
}

func claimKey(pool string, cidr netip.Prefix) string { return pool + " " + cidr.String() }

// claimedByDuplicate reports whether a claim in this node's name is another host's that may be alive: one whose claims
// have changed within Config.NodeGoneAfter.
func (n *duplicateNodes) claimedByDuplicate(machineID, what, claim string) bool {
	if machineID == "" || n.cfg.MachineID == "" || machineID == n.cfg.MachineID {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.clock.now()
	s := n.nodes[machineID]
	if s == nil {
		s = &duplicateNode{claims: map[string]string{}, lastSeen: now}
		n.nodes[machineID] = s
		n.cfg.Log.Warn("another host has claimed blocks as this node: this host was reinstalled, or two hosts have one node name",
			"machineID", machineID, "self", n.cfg.MachineID, "wait", n.cfg.NodeGoneAfter.String())
		n.kick.Notify()
	}
	if was, known := s.claims[what]; known && was != claim {
		n.noteAliveLocked(machineID, s)
	}
	s.claims[what] = claim
	return now.Sub(s.lastSeen) < n.cfg.NodeGoneAfter
}

// noteAliveLocked records that another host's claim has changed.
func (n *duplicateNodes) noteAliveLocked(machineID string, s *duplicateNode) {
	s.lastSeen = n.clock.now()
	if !s.alive {
		s.alive = true
		n.cfg.Log.Error("two hosts run as this node; give each agent its own --node", "node", n.cfg.Node,
			"machineID", machineID, "self", n.cfg.MachineID)
	}
}

// ownershipLost reports whether another host wrote the claim that the datastore has for a block of this node.
func (n *duplicateNodes) ownershipLost(b *block, spec model.AddressBlock) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ownClaims[spec.Claim] {
		return false // the answer was lost
	}
	what := claimKey(spec.Pool, b.cidr)
	other := spec.MachineID != "" && n.cfg.MachineID != "" && spec.MachineID != n.cfg.MachineID
	if n.mismatches[what]++; !other && n.mismatches[what] < maxMismatches {
		return false
	}
	s := n.nodes[spec.MachineID]
	if s == nil {
		s = &duplicateNode{claims: map[string]string{}}
		n.nodes[spec.MachineID] = s
	}
	s.claims[what] = spec.Claim
	n.noteAliveLocked(spec.MachineID, s)
	return true
}

// claimedHere reports whether this host borrowed an address although its claim is not the one in this engine's state:
// the answer to that claim was lost, or an earlier engine wrote it.
func (n *duplicateNodes) claimedHere(what, with string) bool {
	claim, named := strings.CutPrefix(with, n.cfg.Node+"/")
	if !named || claim == "" {
		return false
	}
	claim, _, _ = strings.Cut(claim, claims.EntrySeparator)
	claim, machineID, _ := strings.Cut(claim, ".")
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ownClaims[claim] {
		return true
	}
	if machineID != "" && n.cfg.MachineID != "" && machineID != n.cfg.MachineID {
		return false
	}
	n.mismatches[what]++ // two hosts without machine IDs would take it from each other forever
	return n.mismatches[what] < maxMismatches
}

// recordClaim remembers a claim that this engine is about to write.
func (n *duplicateNodes) recordClaim(claim string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.ownClaims) >= maxOwnClaims {
		clear(n.ownClaims)
	}
	n.ownClaims[claim] = true
}

// resyncDue reports whether claims must be renewed for other hosts, or another host must be checked because it may be
// gone.
func (n *duplicateNodes) resyncDue() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.clock.now()
	for _, s := range n.nodes {
		if s.renewalDue(now, n.cfg.NodeGoneAfter) || now.Sub(s.lastSeen) >= n.cfg.NodeGoneAfter {
			return true
		}
	}
	return false
}

func (s *duplicateNode) renewalDue(now time.Time, gone time.Duration) bool {
	return now.Sub(s.renewed) >= gone/2
}

// markRenewed records that all claims were renewed and forgets hosts that are gone. It returns true if the reported
// hosts have changed.
func (n *duplicateNodes) markRenewed() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.clock.now()
	for machineID, s := range n.nodes {
		if s.renewalDue(now, n.cfg.NodeGoneAfter) {
			s.renewed = now
		}
		if now.Sub(s.lastSeen) >= n.cfg.NodeGoneAfter*5/4 { // its blocks are this host's by now
			delete(n.nodes, machineID)
		}
	}
	ids := slices.Sorted(maps.Keys(n.nodes))
	changed := !slices.Equal(ids, n.reported)
	n.reported = ids
	return changed
}

// renewalDue reports whether another host has not seen a renewed claim of this host for Config.NodeGoneAfter/2.
func (n *duplicateNodes) renewalDue() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.clock.now()
	for _, s := range n.nodes {
		if s.renewalDue(now, n.cfg.NodeGoneAfter) {
			return true
		}
	}
	return false
}

// any reports whether there is another host.
func (n *duplicateNodes) any() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.nodes) > 0
}

// report returns the machine IDs for the journal, in which `weft doctor` reads them.
func (n *duplicateNodes) report() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.reported
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
