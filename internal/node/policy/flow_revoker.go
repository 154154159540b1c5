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
	// revokePause batches changes before connections are checked: dumping conntrack is expensive.
	revokePause = 200 * time.Millisecond
	// tombstoneTime is how long the replies of a deleted connection are dropped, so that the peer's next packet does not
	// create it again in the other direction.
	tombstoneTime = 5 * time.Minute
	// reviveAgain and reviveLongest are the shortest and the longest pause before connections are looked for that are
	// allowed again, and whose replies are still dropped; between them it is reviveShare times what looking took.
	reviveAgain, reviveLongest = time.Second, 30 * time.Second
	reviveShare                = 50
)

// tombstone is what remains of a deleted connection: an element that drops the connection's replies until due. Without
// it the peer's next packet would create the conntrack entry again, in the other direction, as an allowed connection.
type tombstone struct {
	at   policy.EnforcementPoint
	flow policy.Flow
	due  time.Time
}

// flowRevoker deletes the conntrack entries of connections that policies do not allow any more.
type flowRevoker struct {
	cfg     *Config
	log     *slog.Logger
	desired *desired // its lock guards the fields below
	node    *nodeTables
	pods    *podTables
	writer  *writer

	// tombstones are those of deleted connections, the oldest first.
	tombstones []tombstone
}

// revokeAll deletes the conntrack entries of this node's pods that policies do not allow any more, after each change,
// until ctx ends.
func (fr *flowRevoker) revokeAll(ctx context.Context) error {
	var unwritten, dropped <-chan time.Time
	for {
		var expire <-chan time.Time
		fr.desired.mu.Lock()
		if len(fr.tombstones) > 0 {
			expire = fr.cfg.After(max(fr.tombstones[0].due.Sub(fr.cfg.Now()), 0))
		}
		fr.desired.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-expire:
			fr.expireTombstones()
			continue
		case <-fr.desired.checkDue:
		case <-unwritten:
		case <-dropped:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-fr.cfg.After(revokePause):
		}
		unwritten, dropped = nil, nil
		began := fr.cfg.Now()
		if !fr.revoke(ctx) {
			unwritten = fr.cfg.After(again)
		}
		if fr.dropsAllowed() {
			took := fr.cfg.Now().Sub(began)
			dropped = fr.cfg.After(min(max(reviveShare*took, reviveAgain), reviveLongest))
		}
	}
}

// expireTombstones deletes expired tombstones.
func (fr *flowRevoker) expireTombstones() {
	fr.desired.mu.Lock()
	defer fr.desired.mu.Unlock()
	now := fr.cfg.Now()
	for len(fr.tombstones) > 0 && !fr.tombstones[0].due.After(now) {
		fr.desired.index.UndropReplies(fr.tombstones[0].at, fr.tombstones[0].flow)
		fr.tombstones = fr.tombstones[1:]
	}
	fr.desired.due.Notify()
}

// dropsAllowed reports whether there may be a connection that policies allow again, and whose replies are dropped.
func (fr *flowRevoker) dropsAllowed() bool {
	fr.desired.mu.Lock()
	defer fr.desired.mu.Unlock()
	return slices.ContainsFunc(fr.tombstones, func(s tombstone) bool {
		return s.at.Tap != "" || fr.desired.index.Allowed(s.at, s.flow)
	})
}

// revive no longer drops the replies of connections that the kernel tracks in the right direction and that policies allow:
// a new pod sends before its address is known here, and a policy comes back. Without such an entry a reply would create
// one in the other direction, which a later policy would not be compared with.
func (fr *flowRevoker) revive(at policy.EnforcementPoint, allowed []policy.Flow) {
	if len(allowed) == 0 {
		return
	}
	those := map[policy.Flow]bool{}
	for _, f := range allowed {
		those[f] = true
	}
	fr.desired.mu.Lock()
	defer fr.desired.mu.Unlock()
	before := len(fr.tombstones)
	fr.tombstones = slices.DeleteFunc(fr.tombstones, func(s tombstone) bool {
		again := s.at == at && those[s.flow]
		if again {
			fr.desired.index.UndropReplies(s.at, s.flow)
		}
		return again
	})
	if len(fr.tombstones) < before {
		fr.desired.due.Notify()
	}
}

// dropped returns the flows of a place whose replies are dropped.
func (fr *flowRevoker) dropped(at policy.EnforcementPoint) map[policy.Flow]bool {
	fr.desired.mu.Lock()
	defer fr.desired.mu.Unlock()
	out := map[policy.Flow]bool{}
	for _, s := range fr.tombstones {
		if s.at == at {
			out[s.flow] = true
		}
	}
	return out
}

// revoke checks all tracked connections of this node's pods, in all places. Changes are written first: an old rule
// would let the next packet of a connection create its entry again. It reports whether all changes were written.
func (fr *flowRevoker) revoke(ctx context.Context) (written bool) {
	fr.node.readOwnAddrs(ctx)
	written = fr.writer.commit(ctx) == nil && !fr.writer.wrong() // the writer reports the error
	fr.desired.mu.Lock()
	all := map[policy.EnforcementPoint]*kernel.Conn{}
	if fr.desired.readyLocked() && len(fr.desired.known) > 0 && len(fr.desired.local) > 0 {
		all[policy.EnforcementPoint{}] = fr.cfg.Host
		if fr.desired.hasPortsLocked() {
			all[policy.EnforcementPoint{Ports: true}] = fr.cfg.Host
		}
		for p, at := range fr.pods.places {
			if at.conn != nil && !at.namespaceChanged {
				all[p] = at.conn
			}
		}
	}
	fr.desired.mu.Unlock()
	for p, at := range all {
		// A pod that was deleted meanwhile has no connections.
		cut := fr.revokeAt
		if p.Tap != "" {
			cut = fr.revokeTap
		}
		if err := cut(ctx, p, at); err != nil && !errors.Is(err, os.ErrClosed) && ctx.Err() == nil {
			fr.log.Warn("connections that policies deny could not be deleted and may continue", "err", err)
		}
	}
	return written && !fr.writer.wrong()
}

// revokeAt deletes connections in one namespace. Before one is deleted, rules that drop its replies are added: otherwise a
// reply would create an entry in the other direction. One that has ended has no replies, and its client may use the same
// port again soon, for a connection that policies allow by then.
func (fr *flowRevoker) revokeAt(ctx context.Context, p policy.EnforcementPoint, at *kernel.Conn) error {
	peers := fr.desired.conntrackPeers(p)
	if len(peers) == 0 {
		return nil
	}
	tracked, err := at.FindConntrack(peers, func(state.Connection) bool { return true })
	if err != nil {
		return err
	}
	if err := fr.withdraw(ctx, p, at); err != nil {
		return err
	}
	denied, allowed := fr.desired.evaluated(p, tracked)
	var again []policy.Flow
	if dropped := fr.dropped(p); len(dropped) > 0 {
		for _, c := range allowed {
			if f := flowOf(c.Connection); dropped[f] {
				again = append(again, f)
			}
		}
	}
	fr.revive(p, again)
	if len(denied) == 0 {
		return nil
	}
	var flows []policy.Flow
	for _, c := range denied {
		if !c.Finished {
			flows = append(flows, flowOf(c.Connection))
		}
	}
	if err := fr.addTombstones(ctx, p, flows); err != nil {
		return err
	}
	err = at.DeleteConntrack(denied)
	fr.cfg.connectionsEnded()
	if err != nil {
		return err
	}
	for _, c := range denied {
		fr.log.Debug("connection is deleted", "proto", c.Proto, "from", c.Src.String(), "to", c.ReplySrc.String())
	}
	fr.log.Info("connections that policies deny are deleted", "count", len(denied),
		"example", denied[0].Src.String()+" > "+denied[0].ReplySrc.String())
	fr.desired.mu.Lock()
	defer fr.desired.mu.Unlock()
	fr.desired.stats.Cut += uint64(len(denied))
	return nil
}

// withdraw has replies dropped again that a rule lets pass, because policies had allowed the connection meanwhile, and do
// not any more. What the table lets pass is not in the plan.
func (fr *flowRevoker) withdraw(ctx context.Context, p policy.EnforcementPoint, at *kernel.Conn) error {
	if len(fr.dropped(p)) == 0 {
		return nil
	}
	for _, set := range policy.ResumedSets() {
		resumed, err := at.DynamicElements(ctx, p.Family(), p.Table(), set)
		if err != nil {
			return err
		}
		if set.Elements = fr.desired.deniedReplies(p, resumed); len(set.Elements) > 0 {
			if err := at.DeleteDynamic(ctx, p.Family(), p.Table(), set); err != nil {
				return err
			}
		}
	}
	return nil
}

// addTombstones adds tombstones: the replies of these connections are dropped for a while.
func (fr *flowRevoker) addTombstones(ctx context.Context, at policy.EnforcementPoint, denied []policy.Flow) error {
	if len(denied) == 0 {
		return nil
	}
	due := fr.cfg.Now().Add(tombstoneTime)
	fr.desired.mu.Lock()
	newer := map[policy.Flow]bool{}
	for _, f := range denied {
		newer[f] = true
	}
	fr.tombstones = slices.DeleteFunc(fr.tombstones, func(s tombstone) bool { return s.at == at && newer[s.flow] })
	for _, f := range denied {
		if f.Protocol != "" && newer[f] {
			newer[f] = false // it may be tracked twice, in two zones
			fr.desired.index.DropReplies(at, f)
			fr.tombstones = append(fr.tombstones, tombstone{at, f, due})
		}
	}
	fr.desired.mu.Unlock()
	return fr.writer.commit(ctx)
}

// flowOf returns a connection's flow as policies see it: from its client to its server, after the DNAT of a service.
func flowOf(c state.Connection) policy.Flow {
	f := policy.Flow{Src: c.Src.Addr(), Dst: c.ReplySrc.Addr(), SrcPort: c.Src.Port(), DstPort: c.ReplySrc.Port()}
	switch c.Proto {
	case 6:
		f.Protocol = model.TCP
	case 17:
		f.Protocol = model.UDP
	case 132:
		f.Protocol = model.SCTP
	default:
		f.Number = c.Proto
	}
	return f
}

// revokeTap deletes the elements of a macvtap's sets that policies do not allow any more: there is no conntrack.
func (fr *flowRevoker) revokeTap(ctx context.Context, p policy.EnforcementPoint, at *kernel.Conn) error {
	var gone []state.Set
	var flows []policy.Flow
	for _, m := range policy.FlowSets() {
		known, err := at.DynamicElements(ctx, p.Family(), p.Table(), m.Set)
		if err != nil {
			return err
		}
		denied, fs, allowed := fr.desired.evaluatedElements(p, m, known)
		fr.revive(p, allowed)
		if len(denied) > 0 {
			set := m.Set
			set.Elements = denied
			gone, flows = append(gone, set), append(flows, fs...)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	if err := fr.addTombstones(ctx, p, flows); err != nil {
		return err
	}
	if err := at.DeleteDynamic(ctx, p.Family(), p.Table(), gone...); err != nil {
		return err
	}
	fr.log.Info("connections at a macvtap that policies deny are deleted", "pod", p.Pod.String(),
		"interface", p.Tap, "count", len(flows))
	fr.desired.mu.Lock()
	defer fr.desired.mu.Unlock()
	fr.desired.stats.Cut += uint64(len(flows))
	return nil
}
