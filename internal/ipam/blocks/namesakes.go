// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"encoding/json"
	"errors"
	"io/fs"
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

// Two machines may run as one node: a clone, a machine that was installed anew while the old one still runs. They must
// not give addresses of the same blocks. So a claim says which machine made it, and a block of another machine with
// this node's name is as another node's. Who sees one claims its own blocks anew, which the other sees in turn: that is
// a sign of life. A machine that gives none for as long as a node must be missing to count as gone was replaced by this
// one.

// usurps is how often a claim may be another one than this engine made, by a machine of the same identity, before it is
// believed that there are two of them: requests of an engine that was killed may arrive late.
const usurps = 3

// mostSent bounds how many of its own claims an engine remembers.
const mostSent = 4096

// stranger is another machine that runs, or ran, as this node.
type stranger struct {
	// things are what it has, each with the claim that was last seen.
	things map[string]string
	since  time.Time // it has given no sign of life
	alive  bool      // it has given one
	// greeted is when this node's blocks were claimed anew for it to see.
	greeted time.Time
}

// machineOf is the machine in the holder of a ceded address: the part of the claim behind the point.
func machineOf(claim string) string {
	claim, _, _ = strings.Cut(claim, claims.For)
	_, machine, _ := strings.Cut(claim, ".")
	return machine
}

// namesakes tells what this machine claimed from what another one claimed that runs as the same node.
type namesakes struct {
	cfg   *Config
	kick  notify.Chan
	clock *clock

	mu     sync.Mutex
	sent   map[string]bool // claims that this engine made
	usurps map[string]int  // how often a thing of ours had a claim that it did not make
	// strangers are other machines that run as this node; told are those that the journal names.
	strangers map[string]*stranger
	told      []string
}

// signed is a claim for a ceded address, where the machine has no other place.
func (n *namesakes) signed(claim string) string {
	if n.cfg.Machine == "" {
		return claim
	}
	return claim + "." + n.cfg.Machine
}

// ours tells whether a block is this node's own.
func (n *namesakes) ours(spec model.AddressBlock) bool {
	return spec.Node == n.cfg.Node && !n.strange(spec.Machine, thing(spec.Pool, spec.CIDR), spec.Claim)
}

func thing(pool string, cidr netip.Prefix) string { return pool + " " + cidr.String() }

// strange tells whether a thing with this node's name on it belongs to another machine that may be alive. Of one that
// was silent for long enough it does not.
func (n *namesakes) strange(machine, what, claim string) bool {
	if machine == "" || n.cfg.Machine == "" || machine == n.cfg.Machine {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.clock.now()
	s := n.strangers[machine]
	if s == nil {
		s = &stranger{things: map[string]string{}, since: now}
		n.strangers[machine] = s
		n.cfg.Log.Warn("another machine has claimed blocks as this node: this one was installed anew, or two have one name",
			"machine", machine, "self", n.cfg.Machine, "wait", n.cfg.Gone.String())
		n.kick.Notify()
	}
	if was, known := s.things[what]; known && was != claim {
		n.lives(machine, s)
	}
	s.things[what] = claim
	return now.Sub(s.since) < n.cfg.Gone
}

// lives notes a sign of life; the caller holds the lock.
func (n *namesakes) lives(machine string, s *stranger) {
	s.since = n.clock.now()
	if !s.alive {
		s.alive = true
		n.cfg.Log.Error("two machines run as this node; give each agent its own --node", "node", n.cfg.Node,
			"machine", machine, "self", n.cfg.Machine)
	}
}

// usurped tells whether another machine made the claim that the store has of a block of ours.
func (n *namesakes) usurped(b *block, spec model.AddressBlock) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sent[spec.Claim] {
		return false // an answer that was lost
	}
	what := thing(spec.Pool, b.cidr)
	other := spec.Machine != "" && n.cfg.Machine != "" && spec.Machine != n.cfg.Machine
	if n.usurps[what]++; !other && n.usurps[what] < usurps {
		return false
	}
	s := n.strangers[spec.Machine]
	if s == nil {
		s = &stranger{things: map[string]string{}}
		n.strangers[spec.Machine] = s
	}
	s.things[what] = spec.Claim
	n.lives(spec.Machine, s)
	return true
}

// claimedHere reports whether the holder of a ceded address that this engine has by another claim is this machine all
// the same: it made that claim and the answer was lost, or an engine before it did.
func (n *namesakes) claimedHere(what, with string) bool {
	claim, named := strings.CutPrefix(with, n.cfg.Node+"/")
	if !named || claim == "" {
		return false
	}
	claim, _, _ = strings.Cut(claim, claims.For)
	claim, machine, _ := strings.Cut(claim, ".")
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sent[claim] {
		return true
	}
	if machine != "" && n.cfg.Machine != "" && machine != n.cfg.Machine {
		return false
	}
	n.usurps[what]++ // two machines that cannot be told apart would take it from each other for ever
	return n.usurps[what] < usurps
}

// sends notes a claim that this engine is about to make.
func (n *namesakes) sends(claim string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.sent) >= mostSent {
		clear(n.sent)
	}
	n.sent[claim] = true
}

// greetings tells whether strangers are to be greeted, or looked at again because they may be gone.
func (n *namesakes) greetings() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.clock.now()
	for _, s := range n.strangers {
		if s.waits(now, n.cfg.Gone) || now.Sub(s.since) >= n.cfg.Gone {
			return true
		}
	}
	return false
}

func (s *stranger) waits(now time.Time, gone time.Duration) bool { return now.Sub(s.greeted) >= gone/2 }

// greeted notes that all strangers were greeted and forgets those that are gone; true when others than before are to be
// told of.
func (n *namesakes) greeted() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.clock.now()
	for machine, s := range n.strangers {
		if s.waits(now, n.cfg.Gone) {
			s.greeted = now
		}
		if now.Sub(s.since) >= n.cfg.Gone*5/4 { // what it had is this node's by now
			delete(n.strangers, machine)
		}
	}
	told := slices.Sorted(maps.Keys(n.strangers))
	changed := !slices.Equal(told, n.told)
	n.told = told
	return changed
}

// wait tells whether one of them has not seen a claim of this machine for long.
func (n *namesakes) wait() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.clock.now()
	for _, s := range n.strangers {
		if s.waits(now, n.cfg.Gone) {
			return true
		}
	}
	return false
}

// any tells whether there is one.
func (n *namesakes) any() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.strangers) > 0
}

// toPeople are those that the journal names.
func (n *namesakes) toPeople() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.told
}

// Strangers are the other machines that an agent with that state directory has seen to claim addresses as its node.
func Strangers(stateDir string) ([]string, error) {
	b, err := os.ReadFile(filepath.Join(stateDir, "blocks", journalName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var j journal
	if err == nil {
		err = json.Unmarshal(b, &j)
	}
	return j.Strangers, err
}
