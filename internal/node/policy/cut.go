// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/state"
)

const (
	// cutPause gathers changes before connections are looked at: going through all of them is work.
	cutPause = 200 * time.Millisecond
	// scarTime is how long the end of a cut connection is remembered, so that the other side's next packet does not open
	// it anew from there.
	scarTime = 5 * time.Minute
)

// scar is a cut connection.
type scar struct {
	at   policy.Place
	flow policy.Flow
	due  time.Time
}

// cutAll has the kernel forget the connections of this node's pods that policies do not allow any more, each time that
// something changed, until ctx ends.
func (e *Enforcer) cutAll(ctx context.Context) error {
	for {
		var heal <-chan time.Time
		e.mu.Lock()
		if len(e.cuts) > 0 {
			heal = e.cfg.After(max(e.cuts[0].due.Sub(e.cfg.Now()), 0))
		}
		e.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-heal:
			e.heal()
			continue
		case <-e.judge:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-e.cfg.After(cutPause): // by now it has been written
		}
		e.cut(ctx)
	}
}

// heal forgets cuts that are old.
func (e *Enforcer) heal() {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.cfg.Now()
	for len(e.cuts) > 0 && !e.cuts[0].due.After(now) {
		e.index.Uncut(e.cuts[0].at, e.cuts[0].flow)
		e.cuts = e.cuts[1:]
	}
	token(e.due)
}

// cut looks at all tracked connections of this node's pods, wherever they are tracked.
func (e *Enforcer) cut(ctx context.Context) {
	e.self()
	e.mu.Lock()
	all := map[policy.Place]*kernel.Conn{}
	if e.ready() && len(e.known) > 0 && len(e.local) > 0 {
		all[policy.Place{}] = e.cfg.Host
		if e.hasPorts() {
			all[policy.Place{Ports: true}] = e.cfg.Host
		}
		for p, at := range e.places {
			if at.conn != nil && !at.elsewhere {
				all[p] = at.conn
			}
		}
	}
	e.mu.Unlock()
	for p, at := range all {
		// A pod that went meanwhile has no connections.
		cut := e.cutAt
		if p.Tap != "" {
			cut = e.cutTap
		}
		if err := cut(ctx, p, at); err != nil && !errors.Is(err, os.ErrClosed) && ctx.Err() == nil {
			e.log.Warn("connections that policies do not allow any more may go on", "err", err)
		}
	}
}

// cutAt cuts connections in one namespace. Before one is forgotten, what its other side sends is dropped: that would
// look like the beginning of a connection the other way.
func (e *Enforcer) cutAt(ctx context.Context, p policy.Place, at *kernel.Conn) error {
	parties := e.parties(p)
	if len(parties) == 0 {
		return nil
	}
	tracked, err := at.Find(parties, func(state.Connection) bool { return true })
	if err != nil {
		return err
	}
	denied := e.denied(p, tracked)
	if len(denied) == 0 {
		return nil
	}
	if p.OnNode() {
		var flows []policy.Flow
		for _, c := range denied {
			flows = append(flows, flowOf(c.Connection))
		}
		if err := e.scar(ctx, policy.Place{}, flows); err != nil {
			return err
		}
	}
	if err := at.Forget(denied); err != nil {
		return err
	}
	for _, c := range denied {
		e.log.Debug("connection is cut", "proto", c.Proto, "from", c.From.String(), "to", c.Answers.String())
	}
	e.log.Info("connections are cut that policies do not allow any more", "count", len(denied),
		"one", denied[0].From.String()+" > "+denied[0].Answers.String())
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Cut += uint64(len(denied))
	return nil
}

// scar has what the other sides of connections send be dropped for a while.
func (e *Enforcer) scar(ctx context.Context, at policy.Place, denied []policy.Flow) error {
	due := e.cfg.Now().Add(scarTime)
	e.mu.Lock()
	for _, f := range denied {
		if f.Protocol != "" {
			e.index.Cut(at, f)
			e.cuts = slices.DeleteFunc(e.cuts, func(s scar) bool { return s.flow == f && s.at == at }) // the newer one counts
			e.cuts = append(e.cuts, scar{at, f, due})
		}
	}
	e.mu.Unlock()
	return e.commit(ctx)
}

// parties are who begins or answers connections that are judged in a place.
func (e *Enforcer) parties(p policy.Place) []state.Party {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.index.Parties(p)
}

// denied are those of the connections that policy is against.
func (e *Enforcer) denied(p policy.Place, tracked []kernel.Found) []kernel.Found {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.DeleteFunc(tracked, func(c kernel.Found) bool { return e.index.Allowed(p, flowOf(c.Connection)) })
}

// flowOf is a connection as policies see it: from who began it to who answers, after the translation of a service's
// address.
func flowOf(c state.Connection) policy.Flow {
	f := policy.Flow{Src: c.From.Addr(), Dst: c.Answers.Addr(), SrcPort: c.From.Port(), DstPort: c.Answers.Port()}
	switch c.Proto {
	case 6:
		f.Protocol = model.TCP
	case 17:
		f.Protocol = model.UDP
	case 132:
		f.Protocol = model.SCTP
	}
	return f
}
