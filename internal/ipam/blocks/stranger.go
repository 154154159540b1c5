// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/model"
)

// Two machines may run as one node: a clone, a machine that was installed anew while the old one still runs. They must not give
// addresses of the same blocks. So a claim says which machine made it, and a block of another machine with this node's name
// is as another node's. Who sees one claims its own blocks anew, which the other sees in turn: that is a sign of life. A machine
// that gives none for as long as a node must be missing to count as gone was replaced by this one.

// usurps is how often a claim may be another one than this engine made, by a machine of the same identity, before it is believed
// that there are two of them: requests of an engine that was killed may arrive late.
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
	claim, _, _ = strings.Cut(claim, ForClaim)
	_, machine, _ := strings.Cut(claim, ".")
	return machine
}

// signed is a claim for a ceded address, where the machine has no other place.
func (e *Engine) signed(claim string) string {
	if e.cfg.Machine == "" {
		return claim
	}
	return claim + "." + e.cfg.Machine
}

// ours tells whether a block is this node's own.
func (e *Engine) ours(spec model.AddressBlock) bool {
	return spec.Node == e.cfg.Node && !e.strange(spec.Machine, thing(spec.Pool, spec.CIDR), spec.Claim)
}

func thing(pool string, cidr netip.Prefix) string { return pool + " " + cidr.String() }

// strange tells whether a thing with this node's name on it belongs to another machine that may be alive. Of one that was silent
// for long enough it does not.
func (e *Engine) strange(machine, what, claim string) bool {
	if machine == "" || e.cfg.Machine == "" || machine == e.cfg.Machine {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.now()
	s := e.strangers[machine]
	if s == nil {
		s = &stranger{things: map[string]string{}, since: now}
		e.strangers[machine] = s
		e.cfg.Log.Warn("another machine has claimed blocks as this node: this one was installed anew, or two have one name",
			"machine", machine, "self", e.cfg.Machine, "wait", e.cfg.Gone.String())
		e.wake()
	}
	if was, known := s.things[what]; known && was != claim {
		e.lives(machine, s)
	}
	s.things[what] = claim
	return now.Sub(s.since) < e.cfg.Gone
}

// lives notes a sign of life; the caller holds the lock.
func (e *Engine) lives(machine string, s *stranger) {
	s.since = e.now()
	if !s.alive {
		s.alive = true
		e.cfg.Log.Error("two machines run as this node; give each agent its own --node", "node", e.cfg.Node, "machine", machine, "self", e.cfg.Machine)
	}
}

// usurped tells whether another machine made the claim that the store has of a block of ours.
func (e *Engine) usurped(b *block, spec model.AddressBlock) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sent[spec.Claim] {
		return false // an answer that was lost
	}
	what := thing(spec.Pool, b.cidr)
	other := spec.Machine != "" && e.cfg.Machine != "" && spec.Machine != e.cfg.Machine
	if e.usurps[what]++; !other && e.usurps[what] < usurps {
		return false
	}
	s := e.strangers[spec.Machine]
	if s == nil {
		s = &stranger{things: map[string]string{}}
		e.strangers[spec.Machine] = s
	}
	s.things[what] = spec.Claim
	e.lives(spec.Machine, s)
	return true
}

// claimedHere reports whether the holder of a ceded address that this engine has by another claim is this machine all the same: it made
// that claim and the answer was lost, or an engine before it did.
func (e *Engine) claimedHere(what, with string) bool {
	claim, named := strings.CutPrefix(with, e.cfg.Node+"/")
	if !named || claim == "" {
		return false
	}
	claim, _, _ = strings.Cut(claim, ForClaim)
	claim, machine, _ := strings.Cut(claim, ".")
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sent[claim] {
		return true
	}
	if machine != "" && e.cfg.Machine != "" && machine != e.cfg.Machine {
		return false
	}
	e.usurps[what]++ // two machines that cannot be told apart would take it from each other for ever
	return e.usurps[what] < usurps
}

// sends notes a claim that this engine is about to make.
func (e *Engine) sends(claim string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.sent) >= mostSent {
		clear(e.sent)
	}
	e.sent[claim] = true
}

// greetings tells whether strangers are to be greeted, or looked at again because they may be gone.
func (e *Engine) greetings() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.now()
	for _, s := range e.strangers {
		if s.waits(now, e.cfg.Gone) || now.Sub(s.since) >= e.cfg.Gone {
			return true
		}
	}
	return false
}

func (s *stranger) waits(now time.Time, gone time.Duration) bool { return now.Sub(s.greeted) >= gone/2 }

// greet claims this node's blocks of a pool anew where a stranger has not seen that for long. The caller has the pool's turn.
func (e *Engine) greet(ctx context.Context, p *pool) error {
	e.mu.Lock()
	waits := false
	for _, s := range e.strangers {
		waits = waits || s.waits(e.now(), e.cfg.Gone)
	}
	e.mu.Unlock()
	if !waits {
		return nil
	}
	for _, b := range e.ownBlocks(p) {
		there, err := e.refresh(ctx, p, b)
		if err == nil && there && b.stands == owned {
			err = e.renew(ctx, p, b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// greeted notes that all pools were claimed anew, forgets strangers that are gone, and writes down who is left.
func (e *Engine) greeted() error {
	e.mu.Lock()
	now := e.now()
	for machine, s := range e.strangers {
		if s.waits(now, e.cfg.Gone) {
			s.greeted = now
		}
		if now.Sub(s.since) >= e.cfg.Gone*5/4 { // what it had is this node's by now
			delete(e.strangers, machine)
		}
	}
	told := slices.Sorted(maps.Keys(e.strangers))
	changed := !slices.Equal(told, e.told)
	e.told = told
	e.mu.Unlock()
	if changed {
		return e.save()
	}
	return nil
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
