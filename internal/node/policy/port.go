// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

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

// show has bridges show their packets while something is judged at their ports. Where they do not, nothing is known of
// connections there, and a reply needs a rule as any other packet does: nothing opens. It is the turn of who writes the
// node's tables.
func (e *Enforcer) show() {
	e.mu.Lock()
	ported, blind := e.ported, e.blind
	e.mu.Unlock()
	if !ported {
		return
	}
	var err error
	for _, name := range []string{"bridge-nf-call-iptables", "bridge-nf-call-ip6tables"} {
		path := filepath.Join(cmp.Or(e.cfg.Bridges, shows), name)
		var set bool
		if set, err = showAt(path); err != nil {
			break
		}
		if set {
			e.log.Info("policies are judged at ports of bridges, which show connections from now on", "setting", path)
		}
	}
	if err != nil && !blind {
		e.log.Error(
			"bridges do not show connections: replies to pods at their ports that policies select are dropped, too; load br_netfilter", "err", err,
		)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.blind = err != nil
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
func (e *Enforcer) showLate() <-chan time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.ported {
		return nil
	}
	return e.cfg.After(showPeriod)
}

// putPorts makes the table of the node's bridges that of tables. That it cannot be is no obstacle to who is not at a
// port. It is the turn of who writes the node's tables.
func (e *Enforcer) putPorts(ctx context.Context, tables map[policy.Place]state.Table) {
	p := policy.Place{Ports: true}
	err := e.put(ctx, e.cfg.Host, tables, p)
	e.mu.Lock()
	defer e.mu.Unlock()
	was := e.unwritten
	e.bridges = err
	if _, e.ported = tables[p]; e.bridges != nil && !e.ported && !e.hasPorts() {
		e.bridges = nil // a kernel that cannot have it has none
	}
	if e.unwritten = ""; e.bridges == nil {
		return
	}
	e.stats.Failures++
	if e.unwritten = e.bridges.Error(); e.unwritten != was {
		e.log.Error("policies of the node's bridges cannot be written; it is tried again", "err", e.bridges)
	}
}

// hasPorts tells whether some interface is judged at a port. The lock is held.
func (e *Enforcer) hasPorts() bool {
	for _, l := range e.local {
		if l.Point() == model.PointPort {
			return true
		}
	}
	return false
}

// bare are the tables of a place by their names.
func bare(p policy.Place) []state.Table {
	out := []state.Table{{Family: p.Family(), Name: p.Table()}}
	for _, t := range p.Beside() {
		out = append(out, state.Table{Family: t.Family, Name: t.Name})
	}
	return out
}
