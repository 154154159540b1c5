// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"errors"
	"log/slog"
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

// cutter ends connections that policies do not allow any more.
type cutter struct {
	cfg     *Config
	log     *slog.Logger
	desired *desired // its lock guards what follows
	node    *nodeTables
	pods    *podTables
	writer  *writer

	// cuts are those that were cut a short while ago, the oldest first.
	cuts []scar
}

// cutAll has the kernel forget the connections of this node's pods that policies do not allow any more, each time that
// something changed, until ctx ends.
func (cu *cutter) cutAll(ctx context.Context) error {
	for {
		var heal <-chan time.Time
		cu.desired.mu.Lock()
		if len(cu.cuts) > 0 {
			heal = cu.cfg.After(max(cu.cuts[0].due.Sub(cu.cfg.Now()), 0))
		}
		cu.desired.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-heal:
			cu.heal()
			continue
		case <-cu.desired.judge:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-cu.cfg.After(cutPause): // by now it has been written
		}
		cu.cut(ctx)
	}
}

// heal forgets cuts that are old.
func (cu *cutter) heal() {
	cu.desired.mu.Lock()
	defer cu.desired.mu.Unlock()
	now := cu.cfg.Now()
	for len(cu.cuts) > 0 && !cu.cuts[0].due.After(now) {
		cu.desired.index.Uncut(cu.cuts[0].at, cu.cuts[0].flow)
		cu.cuts = cu.cuts[1:]
	}
	cu.desired.due.Notify()
}

// cut looks at all tracked connections of this node's pods, wherever they are tracked.
func (cu *cutter) cut(ctx context.Context) {
	cu.node.self()
	cu.desired.mu.Lock()
	all := map[policy.Place]*kernel.Conn{}
	if cu.desired.ready() && len(cu.desired.known) > 0 && len(cu.desired.local) > 0 {
		all[policy.Place{}] = cu.cfg.Host
		if cu.desired.hasPorts() {
			all[policy.Place{Ports: true}] = cu.cfg.Host
		}
		for p, at := range cu.pods.places {
			if at.conn != nil && !at.elsewhere {
				all[p] = at.conn
			}
		}
	}
	cu.desired.mu.Unlock()
	for p, at := range all {
		// A pod that went meanwhile has no connections.
		cut := cu.cutAt
		if p.Tap != "" {
			cut = cu.cutTap
		}
		if err := cut(ctx, p, at); err != nil && !errors.Is(err, os.ErrClosed) && ctx.Err() == nil {
			cu.log.Warn("connections that policies do not allow any more may go on", "err", err)
		}
	}
}

// cutAt cuts connections in one namespace. Before one is forgotten, what its other side sends is dropped: that would
// look like the beginning of a connection the other way.
func (cu *cutter) cutAt(ctx context.Context, p policy.Place, at *kernel.Conn) error {
	parties := cu.desired.parties(p)
	if len(parties) == 0 {
		return nil
	}
	tracked, err := at.Find(parties, func(state.Connection) bool { return true })
	if err != nil {
		return err
	}
	denied := cu.desired.denied(p, tracked)
	if len(denied) == 0 {
		return nil
	}
	if p.OnNode() {
		var flows []policy.Flow
		for _, c := range denied {
			flows = append(flows, flowOf(c.Connection))
		}
		if err := cu.scar(ctx, policy.Place{}, flows); err != nil {
			return err
		}
	}
	if err := at.Forget(denied); err != nil {
		return err
	}
	for _, c := range denied {
		cu.log.Debug("connection is cut", "proto", c.Proto, "from", c.From.String(), "to", c.Answers.String())
	}
	cu.log.Info("connections are cut that policies do not allow any more", "count", len(denied),
		"one", denied[0].From.String()+" > "+denied[0].Answers.String())
	cu.desired.mu.Lock()
	defer cu.desired.mu.Unlock()
	cu.desired.stats.Cut += uint64(len(denied))
	return nil
}

// scar has what the other sides of connections send be dropped for a while.
func (cu *cutter) scar(ctx context.Context, at policy.Place, denied []policy.Flow) error {
	due := cu.cfg.Now().Add(scarTime)
	cu.desired.mu.Lock()
	for _, f := range denied {
		if f.Protocol != "" {
			cu.desired.index.Cut(at, f)
			cu.cuts = slices.DeleteFunc(cu.cuts, func(s scar) bool { return s.flow == f && s.at == at }) // the newer one counts
			cu.cuts = append(cu.cuts, scar{at, f, due})
		}
	}
	cu.desired.mu.Unlock()
	return cu.writer.commit(ctx)
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

// cutTap forgets what a macvtap's rules remember and policies do not allow any more. Nobody tracks connections there.
func (cu *cutter) cutTap(ctx context.Context, p policy.Place, at *kernel.Conn) error {
	var gone []state.Set
	var flows []policy.Flow
	for _, m := range policy.Memories() {
		known, err := at.Learnt(ctx, p.Family(), p.Table(), m.Set)
		if err != nil {
			return err
		}
		if denied, fs := cu.desired.barred(p, m, known); len(denied) > 0 {
			set := m.Set
			set.Elements = denied
			gone, flows = append(gone, set), append(flows, fs...)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	if err := cu.scar(ctx, p, flows); err != nil {
		return err
	}
	if err := at.Unlearn(ctx, p.Family(), p.Table(), gone...); err != nil {
		return err
	}
	cu.log.Info("connections at a macvtap are cut that policies do not allow any more", "pod", p.Pod.String(),
		"interface", p.Tap, "count", len(flows))
	cu.desired.mu.Lock()
	defer cu.desired.mu.Unlock()
	cu.desired.stats.Cut += uint64(len(flows))
	return nil
}
