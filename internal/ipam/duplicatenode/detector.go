// SPDX-License-Identifier: Apache-2.0

// Package duplicatenode detects another host that runs as the same node.
//
// Two hosts may run as one node by mistake: a clone, or a reinstalled host whose predecessor still runs. They must not
// allocate from the same blocks. So a claim has the machine ID of its host, and a block of another machine ID with this
// node's name counts as another node's. A host that sees such a block renews the claims of its own blocks, and the
// other host does the same in turn: the changing claims prove that both are alive. A host whose claims have not changed
// for Config.GoneAfter was replaced by this one.
package duplicatenode

import (
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/ipam/claims"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

// maxMismatches is how many unknown claims with this host's machine ID a detector accepts for a block before it assumes
// a second host: requests of an engine that was killed may arrive late.
const maxMismatches = 3

// maxOwnClaims bounds how many of its own claims a detector remembers.
const maxOwnClaims = 4096

// host is another host that runs, or ran, as this node.
type host struct {
	// claims are its last known claims, by claimKey.
	claims   map[string]string
	lastSeen time.Time // when a claim of it last changed
	alive    bool      // a claim of it has changed since this agent started
	// renewed is when this node's claims were last renewed for it to see.
	renewed time.Time
}

// Config configures a detector.
type Config struct {
	// Node is this node's name; MachineID distinguishes this host, empty: unknown.
	Node, MachineID string
	// GoneAfter is how long the claims of a host must not change before it counts as replaced.
	GoneAfter time.Duration
	Log       *slog.Logger
	Now       func() time.Time
	// Found is woken when another host is found.
	Found notify.Chan
}

// Detector distinguishes claims of this host from those of other hosts that run as the same node. It is safe for
// concurrent use.
type Detector struct {
	cfg Config

	mu         sync.Mutex
	ownClaims  map[string]bool // claims that this agent wrote
	mismatches map[string]int  // unknown claims seen, by claimKey
	// nodes are the other hosts, by machine ID; reported are those that the journal names.
	nodes    map[string]*host
	reported []string
}

// New returns a detector that knows of no other host.
func New(cfg Config) *Detector {
	return &Detector{
		cfg: cfg, ownClaims: map[string]bool{}, mismatches: map[string]int{}, nodes: map[string]*host{},
	}
}

// WithMachineID adds the machine ID to a claim of a borrowed address, whose object has no field for it.
func (n *Detector) WithMachineID(claim string) string {
	if n.cfg.MachineID == "" {
		return claim
	}
	return claim + "." + n.cfg.MachineID
}

// Owns reports whether a block is this host's.
func (n *Detector) Owns(spec model.AddressBlock) bool {
	return spec.Node == n.cfg.Node && !n.claimedByDuplicate(spec.MachineID, claimKey(spec.Pool, spec.CIDR), spec.Claim)
}

// LentToDuplicate reports whether an address of a block is lent to another host of this node's name that may be alive.
// with is the borrower in the block's object.
func (n *Detector) LentToDuplicate(pool string, a netip.Addr, with string) bool {
	claim, _, _ := strings.Cut(with, claims.EntrySeparator)
	_, machineID, _ := strings.Cut(claim, ".")
	return n.claimedByDuplicate(machineID, claimKey(pool, netip.PrefixFrom(a, a.BitLen())), with)
}

// claimKey identifies a block, or a borrowed address, of a pool.
func claimKey(pool string, cidr netip.Prefix) string { return pool + " " + cidr.String() }

// claimedByDuplicate reports whether a claim in this node's name is another host's that may be alive: one whose claims
// have changed within Config.GoneAfter.
func (n *Detector) claimedByDuplicate(machineID, what, claim string) bool {
	if machineID == "" || n.cfg.MachineID == "" || machineID == n.cfg.MachineID {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.cfg.Now()
	s := n.nodes[machineID]
	if s == nil {
		s = &host{claims: map[string]string{}, lastSeen: now}
		n.nodes[machineID] = s
		n.cfg.Log.Warn("another host has claimed blocks as this node: this host was reinstalled, or two hosts have one node name",
			"machineID", machineID, "self", n.cfg.MachineID, "wait", n.cfg.GoneAfter.String())
		n.cfg.Found.Notify()
	}
	if was, known := s.claims[what]; known && was != claim {
		n.noteAliveLocked(machineID, s)
	}
	s.claims[what] = claim
	return now.Sub(s.lastSeen) < n.cfg.GoneAfter
}

// noteAliveLocked records that another host's claim has changed.
func (n *Detector) noteAliveLocked(machineID string, s *host) {
	s.lastSeen = n.cfg.Now()
	if !s.alive {
		s.alive = true
		n.cfg.Log.Error("two hosts run as this node; give each agent its own --node", "node", n.cfg.Node,
			"machineID", machineID, "self", n.cfg.MachineID)
	}
}

// OwnershipLost reports whether another host wrote the claim that the datastore has for a block of this node.
func (n *Detector) OwnershipLost(cidr netip.Prefix, spec model.AddressBlock) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ownClaims[spec.Claim] {
		return false // the answer was lost
	}
	what := claimKey(spec.Pool, cidr)
	other := spec.MachineID != "" && n.cfg.MachineID != "" && spec.MachineID != n.cfg.MachineID
	if n.mismatches[what]++; !other && n.mismatches[what] < maxMismatches {
		return false
	}
	s := n.nodes[spec.MachineID]
	if s == nil {
		s = &host{claims: map[string]string{}}
		n.nodes[spec.MachineID] = s
	}
	s.claims[what] = spec.Claim
	n.noteAliveLocked(spec.MachineID, s)
	return true
}

// ClaimedHere reports whether this host borrowed an address although its claim is not the one in this agent's state:
// the answer to that claim was lost, or an earlier agent wrote it.
func (n *Detector) ClaimedHere(pool string, cidr netip.Prefix, with string) bool {
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
	what := claimKey(pool, cidr)
	n.mismatches[what]++ // two hosts without machine IDs would take it from each other forever
	return n.mismatches[what] < maxMismatches
}

// RecordClaim remembers a claim that this agent is about to write.
func (n *Detector) RecordClaim(claim string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.ownClaims) >= maxOwnClaims {
		clear(n.ownClaims)
	}
	n.ownClaims[claim] = true
}

// ResyncDue reports whether claims must be renewed for other hosts, or another host must be checked because it may be
// gone.
func (n *Detector) ResyncDue() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.cfg.Now()
	for _, s := range n.nodes {
		if s.renewalDue(now, n.cfg.GoneAfter) || now.Sub(s.lastSeen) >= n.cfg.GoneAfter {
			return true
		}
	}
	return false
}

func (s *host) renewalDue(now time.Time, gone time.Duration) bool {
	return now.Sub(s.renewed) >= gone/2
}

// MarkRenewed records that all claims were renewed and forgets hosts that are gone. It returns true if the reported
// hosts have changed.
func (n *Detector) MarkRenewed() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.cfg.Now()
	for machineID, s := range n.nodes {
		if s.renewalDue(now, n.cfg.GoneAfter) {
			s.renewed = now
		}
		if now.Sub(s.lastSeen) >= n.cfg.GoneAfter*5/4 { // its blocks are this host's by now
			delete(n.nodes, machineID)
		}
	}
	ids := slices.Sorted(maps.Keys(n.nodes))
	changed := !slices.Equal(ids, n.reported)
	n.reported = ids
	return changed
}

// RenewalDue reports whether another host has not seen a renewed claim of this host for half of Config.GoneAfter.
func (n *Detector) RenewalDue() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.cfg.Now()
	for _, s := range n.nodes {
		if s.renewalDue(now, n.cfg.GoneAfter) {
			return true
		}
	}
	return false
}

// Any reports whether there is another host.
func (n *Detector) Any() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.nodes) > 0
}

// Report returns the machine IDs for the journal, in which `weft doctor` reads them.
func (n *Detector) Report() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.reported
}
