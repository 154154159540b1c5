// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"slices"

	"github.com/weft-net/weft/internal/failpoint"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// switcher has finished attachments take their addresses over, or stand by.
type switcher struct {
	host    *kernel.Conn
	boot    string
	locks   *lockSet
	records *recordStore
	catalog *catalog
	hook    *policyHook
	fail    failpoint.Hook
}

// A virtual machine that migrates has two attachments for a while, with the same addresses. One of them stands by: all
// of it is made, policy stands, but nothing on the node leads to its addresses, nothing from there is let in in their
// name, and nobody is told of them.

// activate has a finished attachment that stood by take its addresses over: what leads to them is applied in one batch,
// they are taken from where they were, and others are told. Of one that has them already all of it is made sure of once
// more.
func (s *switcher) activate(ctx context.Context, key model.AttachmentKey) error {
	return s.turn(ctx, key, "activate", func(rec Record) error {
		ways := rec.ways()
		if rec.Standby {
			rec = rec.active()
			if err := s.records.put(rec); err != nil {
				return err
			}
			if err := s.fail.At("after record active"); err != nil {
				return err
			}
		}
		if err := s.applyWays(ctx, rec, ways); err != nil {
			return err
		}
		if err := s.takeAddresses(ctx, rec); err != nil {
			return err
		}
		return s.tellTurned(ctx, rec)
	})
}

// retire has a finished attachment stand by: nothing leads to its addresses here any more. Another one has them, or is
// about to.
func (s *switcher) retire(ctx context.Context, key model.AttachmentKey) error {
	return s.turn(ctx, key, "retire", func(rec Record) error {
		ways := rec.ways()
		if !rec.Standby {
			rec = rec.standing()
			if err := s.records.put(rec); err != nil {
				return err
			}
			if err := s.fail.At("after record standby"); err != nil {
				return err
			}
		}
		f := state.Fragment{Owner: plugin.Owner(key), Host: ways}
		if err := (kernel.Spaces{Host: s.host}).Remove(ctx, f); err != nil {
			return err
		}
		return s.tellTurned(ctx, rec)
	})
}

// turn does something with a finished attachment that no other call does anything with meanwhile.
func (s *switcher) turn(ctx context.Context, key model.AttachmentKey, name string, do func(Record) error) error {
	release, err := s.locks.main.Container(ctx, key.ContainerID)
	if err != nil {
		return err
	}
	defer release()
	leave, err := s.locks.main.Together(ctx)
	if err != nil {
		return err
	}
	defer leave()
	rec, found, err := s.records.get(key)
	switch {
	case err != nil:
		return err
	case !found:
		return model.Faultf(model.CodeUnknownContainer, "", "%s: there is no attachment %s", name, key)
	case rec.Stage != Done || rec.Boot != s.boot:
		return model.Faultf(model.CodeTryAgain, "", "%s: attachment %s is %s", name, key, rec.Stage)
	}
	if err := s.fail.At("before " + name); err != nil {
		return err
	}
	if err := do(rec); err != nil {
		return err
	}
	return s.fail.At("after " + name)
}

// applyWays leads to the addresses: all routes, and the neighbors that they need, in one.
func (s *switcher) applyWays(ctx context.Context, rec Record, ways state.Space) error {
	f := state.Fragment{Owner: plugin.Owner(rec.Key()), Host: ways}
	for _, n := range rec.Fragment().Host.Neighs {
		if slices.ContainsFunc(ways.Routes, func(r state.Route) bool { return r.Link == n.Link && r.Dst.Addr() == n.IP }) {
			f.Host.Neighs = append(f.Host.Neighs, n)
		}
	}
	if f.Host.Empty() {
		return nil
	}
	if err := (kernel.Spaces{Host: s.host}).Apply(ctx, f); err != nil {
		return err
	}
	return s.fail.At("after ways")
}

// takeAddresses has the allocators take the record's addresses from where they were.
func (s *switcher) takeAddresses(ctx context.Context, rec Record) error {
	for _, act := range rec.Acts {
		if act.Kind != ActIPAM || act.Plugin >= len(rec.Network.Plugins) {
			continue
		}
		conf := rec.Network.Plugins[act.Plugin]
		typ, err := s.catalog.ipamType(conf)
		if err != nil {
			return err
		}
		mover := s.catalog.ofIPAM(typ).Move
		if mover == nil {
			continue
		}
		q := ask(rec.Request, conf)
		for _, ip := range act.IPs {
			q.Held = append(q.Held, ip.Address.Addr())
		}
		if q.Wishes, err = s.catalog.wishes(rec.Request, conf); err != nil {
			return err
		}
		if err := mover.Take(ctx, q); err != nil {
			return err
		}
	}
	return s.fail.At("after take")
}

// tellTurned tells who goes by which attachment has the addresses, when all is done for it.
func (s *switcher) tellTurned(ctx context.Context, rec Record) error {
	if rec.Turning {
		rec.Turning = false
		if err := s.records.put(rec); err != nil {
			return err
		}
	}
	return s.hook.turned(ctx, rec)
}
