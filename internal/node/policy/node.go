// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/state"
)

const (
	// shows is where bridges are told to show their packets to the hooks of IP, which track connections.
	shows = "/proc/sys/net/bridge"
	// showPeriod is how often it is looked whether they do, while something is judged at their ports.
	showPeriod = 4 * time.Second
)

// nodeTables are the tables in the node's own namespace: that of its hooks of IP, and that at its bridges' ports.
type nodeTables struct {
	cfg     *Config
	log     *slog.Logger
	desired *desired // its lock guards what follows

	// looking is the turn of who looks at the node's own addresses, looked when that was.
	looking turn
	looked  time.Time
	// right: the kernel holds what the index last said. doubts counts how often that was doubted.
	right  bool
	doubts uint64
	// ported: something is judged at bridges' ports. blind: it was said that they do not show connections. bridges: what
	// is at their ports is not known to be right.
	ported, blind bool
	bridges       error
	unwritten     string // what was said of it
	// unbarred: no port is known to be closed because of that.
	unbarred bool
}

// show has bridges show their packets while something is judged at their ports. Where they do not, nothing is known of
// connections there, and a reply needs a rule as any other packet does: nothing opens. It is the turn of who writes the
// node's tables.
func (nt *nodeTables) show() {
	nt.desired.mu.Lock()
	ported, blind := nt.ported, nt.blind
	nt.desired.mu.Unlock()
	if !ported {
		return
	}
	var err error
	for _, name := range []string{"bridge-nf-call-iptables", "bridge-nf-call-ip6tables"} {
		path := filepath.Join(cmp.Or(nt.cfg.Bridges, shows), name)
		var set bool
		if set, err = showAt(path); err != nil {
			break
		}
		if set {
			nt.log.Info("policies are judged at ports of bridges, which show connections from now on", "setting", path)
		}
	}
	if err != nil && !blind {
		nt.log.Error(
			"bridges do not show connections: replies to pods at their ports that policies select are dropped, too; load br_netfilter", "err", err,
		)
	}
	nt.desired.mu.Lock()
	defer nt.desired.mu.Unlock()
	nt.blind = err != nil
}

// showAt sets one of the settings to 1 if it is not.
func showAt(path string) (set bool, err error) {
	b, err := os.ReadFile(path)
	if err != nil || strings.TrimSpace(string(b)) == "1" {
		return false, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return false, err
	}
	_, err = f.WriteString("1")
	return err == nil, errors.Join(err, f.Close())
}

// showLate fires when it is to be looked at again; never where nothing is judged at a port.
func (nt *nodeTables) showLate() <-chan time.Time {
	nt.desired.mu.Lock()
	defer nt.desired.mu.Unlock()
	if !nt.ported {
		return nil
	}
	return nt.cfg.After(showPeriod)
}

// putPorts makes the table of the node's bridges that of tables. That it cannot be is no obstacle to who is not at a
// port. It is the turn of who writes the node's tables.
func (nt *nodeTables) putPorts(ctx context.Context, tables map[policy.Place]state.Table) {
	p := policy.Place{Ports: true}
	err := nt.put(ctx, nt.cfg.Host, tables, p)
	nt.desired.mu.Lock()
	defer nt.desired.mu.Unlock()
	was := nt.unwritten
	nt.bridges = err
	if _, nt.ported = tables[p]; nt.bridges != nil && !nt.ported && !nt.desired.hasPorts() {
		nt.bridges = nil // a kernel that cannot have it has none
	}
	if nt.unwritten = ""; nt.bridges == nil {
		return
	}
	nt.desired.stats.Failures++
	if nt.unwritten = nt.bridges.Error(); nt.unwritten != was {
		nt.log.Error("policies of the node's bridges cannot be written; it is tried again", "err", nt.bridges)
	}
}

// bare are the tables of a place by their names.
func bare(p policy.Place) []state.Table {
	out := []state.Table{{Family: p.Family(), Name: p.Table()}}
	for _, t := range p.Beside() {
		out = append(out, state.Table{Family: t.Family, Name: t.Name})
	}
	return out
}

// self tells the index the node's own addresses, from which its pods may always be reached: where packets are judged in
// the pod, they look like anybody's.
func (nt *nodeTables) self() {
	nt.looking.take()
	defer nt.looking.end()
	now := nt.cfg.Now()
	nt.desired.mu.Lock()
	due := len(nt.desired.known) > 0 && (!nt.right || now.Sub(nt.looked) >= selfPause)
	if due {
		nt.looked = now
	}
	nt.desired.mu.Unlock()
	if !due {
		return
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		nt.log.Warn("the node's own addresses are not known", "err", err)
		return
	}
	var addrs []netip.Addr
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLoopback() {
			addrs = append(addrs, p.Addr())
		}
	}
	nt.desired.mu.Lock()
	defer nt.desired.mu.Unlock()
	nt.desired.index.SetSelf(addrs)
}

func (nt *nodeTables) write(ctx context.Context, at *kernel.Conn, c policy.Change) error {
	nt.writing(c.Place)
	if c.Gone {
		return at.RemoveTables(ctx, bare(c.Place))
	}
	if c.Made {
		return at.ApplyTables(ctx,
			append(c.Place.Beside(), state.Table{Family: c.Family, Name: c.Name, Sets: c.MakeSets, Chains: c.MakeChains}))
	}
	return at.Change(ctx, []state.TableChange{c.TableChange})
}

// put makes sure of the table of a place, or that there is none.
func (nt *nodeTables) put(
	ctx context.Context, at *kernel.Conn, tables map[policy.Place]state.Table, p policy.Place,
) error {
	nt.writing(p)
	if t, ok := tables[p]; ok {
		return at.ApplyTables(ctx, append(p.Beside(), t))
	}
	return at.RemoveTables(ctx, bare(p))
}

func (nt *nodeTables) writing(p policy.Place) {
	if nt.cfg.Writing != nil {
		nt.cfg.Writing(p)
	}
}

// bar closes the ports of bridges whose guests policies select while the rules there cannot be written: what stands
// there does not know of these policies, or is nothing at all. The links are down until the rules stand; an agent that
// starts finds those that one before has taken down. It is the turn of who writes the node's tables.
func (nt *nodeTables) bar(ctx context.Context) {
	names, due := nt.toBar()
	if !due {
		return
	}
	down, up, err := nt.cfg.Host.Bar(context.WithoutCancel(ctx), names)
	if err != nil {
		nt.log.Error("ports of bridges cannot be closed, or opened again; it is tried again", "ports", names, "err", err)
		return
	}
	if len(down) > 0 {
		nt.log.Error("ports of bridges are closed: policies select pods there, and cannot be written", "ports", down)
	}
	if len(up) > 0 {
		nt.log.Info("ports of bridges are open again, with their policies", "ports", up)
	}
	nt.desired.mu.Lock()
	defer nt.desired.mu.Unlock()
	nt.unbarred, nt.desired.stats.Barred = len(names) == 0, len(names)
}

// toBar are the ports that are to be closed, all others open; false where it is known that there is nothing to do.
func (nt *nodeTables) toBar() (names []string, due bool) {
	nt.desired.mu.Lock()
	defer nt.desired.mu.Unlock()
	if nt.bridges != nil {
		for _, l := range nt.desired.local {
			if l.Point() == model.PointPort && nt.desired.index.Selected(l.Key()) && !slices.Contains(names, l.PolicyLink()) {
				names = append(names, l.PolicyLink())
			}
		}
	}
	return names, len(names) > 0 || !nt.unbarred && len(nt.desired.local) > 0
}
