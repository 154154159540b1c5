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
	"github.com/weft-net/weft/internal/plan/policy/hostendpoint"
	"github.com/weft-net/weft/internal/state"
)

const (
	// bridgeSettings is the directory of the settings by which bridges pass their packets to the IP hooks, which track
	// connections.
	bridgeSettings = "/proc/sys/net/bridge"
	// bridgePeriod is how often these settings are checked while policies are enforced at bridge ports.
	bridgePeriod = 4 * time.Second
)

// nodeTables are the tables in the node's own namespace: that of the IP hooks, and that of its bridges' ports.
type nodeTables struct {
	cfg     *Config
	log     *slog.Logger
	desired *desired // its lock guards the fields below

	// addrsLock is the kernel lock of reading the node's own addresses, addrsRead the time of the last read.
	addrsLock kernelLock
	addrsRead time.Time
	// inSync: the kernel has the index's last state. resyncs counts how often that became uncertain.
	inSync  bool
	resyncs uint64
	// ported: policies are enforced at bridge ports. blind: it was logged that bridges do not track connections. bridges
	// is the error of the table of their ports.
	ported, blind bool
	bridges       error
	unwritten     string // the last logged error
	// portsOpen: no port is known to be down because of that.
	portsOpen bool
}

// enableBridgeNetfilter sets the bridges' settings while policies are enforced at their ports. Without them there is
// no conntrack there, and a reply needs a rule as any other packet does: the failure denies more. The caller has the
// kernel lock of the node's tables.
func (nt *nodeTables) enableBridgeNetfilter() {
	nt.desired.mu.Lock()
	ported, blind := nt.ported, nt.blind
	nt.desired.mu.Unlock()
	if !ported {
		return
	}
	var err error
	for _, name := range []string{"bridge-nf-call-iptables", "bridge-nf-call-ip6tables"} {
		path := filepath.Join(cmp.Or(nt.cfg.Bridges, bridgeSettings), name)
		var set bool
		if set, err = enableAt(path); err != nil {
			break
		}
		if set {
			nt.log.Info("bridge netfilter is enabled for policies at bridge ports", "setting", path)
		}
	}
	if err != nil && !blind {
		nt.log.Error(
			"bridge netfilter is not available; replies to selected pods at bridge ports are dropped, too; load br_netfilter", "err", err,
		)
	}
	nt.desired.mu.Lock()
	defer nt.desired.mu.Unlock()
	nt.blind = err != nil
}

// enableAt sets one of the settings to 1 if it is not.
func enableAt(path string) (set bool, err error) {
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

// bridgeCheck fires when the settings must be checked again, or the node's interfaces; never if no policy is enforced at a
// port, nor at a host endpoint that is found by them.
func (nt *nodeTables) bridgeCheck() <-chan time.Time {
	nt.desired.mu.Lock()
	defer nt.desired.mu.Unlock()
	if !nt.ported && !nt.desired.index.Calico().NeedsInterfaces() {
		return nil
	}
	return nt.cfg.After(bridgePeriod)
}

// putPorts writes the table of the node's bridges. An error does not affect pods that are not at a port. The caller
// has the kernel lock of the node's tables.
func (nt *nodeTables) putPorts(ctx context.Context, tables map[policy.EnforcementPoint]state.Table) {
	p := policy.EnforcementPoint{Ports: true}
	err := nt.put(ctx, nt.cfg.Host, tables, p)
	nt.desired.mu.Lock()
	defer nt.desired.mu.Unlock()
	was := nt.unwritten
	nt.bridges = err
	if _, nt.ported = tables[p]; nt.bridges != nil && !nt.ported && !nt.desired.hasPortsLocked() {
		nt.bridges = nil // a kernel without support has no such table
	}
	if nt.unwritten = ""; nt.bridges == nil {
		return
	}
	nt.desired.stats.Failures++
	if nt.unwritten = nt.bridges.Error(); nt.unwritten != was {
		nt.log.Error("policies of the node's bridges could not be written; agent retries", "err", nt.bridges)
	}
}

// emptyTables returns the empty tables of a place by their names.
func emptyTables(p policy.EnforcementPoint) []state.Table {
	out := []state.Table{{Family: p.Family(), Name: p.Table()}}
	for _, t := range p.AuxiliaryTables() {
		out = append(out, state.Table{Family: t.Family, Name: t.Name})
	}
	return out
}

// readOwnAddrs passes the node's own addresses to the index: the node can always reach its pods, also where packets are
// filtered in the pod and look like any others.
func (nt *nodeTables) readOwnAddrs(ctx context.Context) {
	nt.addrsLock.lock()
	defer nt.addrsLock.unlock()
	now := nt.cfg.Now()
	nt.desired.mu.Lock()
	due := nt.desired.anyLocked() && (!nt.inSync || now.Sub(nt.addrsRead) >= selfPause)
	if due {
		nt.addrsRead = now
	}
	interfaces := due && nt.desired.index.Calico().NeedsInterfaces()
	nt.desired.mu.Unlock()
	if !due {
		return
	}
	if interfaces {
		nt.readInterfaces(ctx)
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		nt.log.Warn("addresses of the node could not be read", "err", err)
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

// readInterfaces passes the node's interfaces to the index, which finds host endpoints by their addresses. The caller has the
// kernel lock of the node's addresses.
func (nt *nodeTables) readInterfaces(ctx context.Context) {
	links, err := nt.cfg.Host.Links(ctx)
	if err != nil {
		nt.log.Warn("interfaces of the node could not be read", "err", err)
		return
	}
	addrs, err := nt.cfg.Host.Addrs(ctx)
	if err != nil {
		nt.log.Warn("addresses of the node's interfaces could not be read", "err", err)
		return
	}
	all := make([]hostendpoint.Interface, 0, len(links))
	for _, l := range links {
		all = append(all, hostendpoint.Interface{Name: l.Name, Master: l.Master, Addrs: addrs[l.Name]})
	}
	nt.desired.mu.Lock()
	defer nt.desired.mu.Unlock()
	nt.desired.index.Calico().SetInterfaces(all)
}

func (nt *nodeTables) write(ctx context.Context, at *kernel.Conn, c policy.Change) error {
	nt.writing(c.Point)
	if c.Gone {
		return at.RemoveTables(ctx, emptyTables(c.Point))
	}
	if c.Made {
		return at.ApplyTables(ctx,
			append(c.Point.AuxiliaryTables(), state.Table{Family: c.Family, Name: c.Name, Sets: c.AddSets, Chains: c.AddChains}))
	}
	return at.Change(ctx, []state.TableChange{c.TableChange})
}

// put writes the table of a place, or deletes it.
func (nt *nodeTables) put(
	ctx context.Context, at *kernel.Conn, tables map[policy.EnforcementPoint]state.Table, p policy.EnforcementPoint,
) error {
	nt.writing(p)
	if t, ok := tables[p]; ok {
		return at.ApplyTables(ctx, append(p.AuxiliaryTables(), t))
	}
	return at.RemoveTables(ctx, emptyTables(p))
}

func (nt *nodeTables) writing(p policy.EnforcementPoint) {
	if nt.cfg.Writing != nil {
		nt.cfg.Writing(p)
	}
}

// quarantinePorts sets bridge ports down whose guests policies select while the table of the ports could not be
// written: the old one does not have these policies, or does not exist. The links are down until the table is written;
// a restarted agent finds those that the previous one has set down. The caller has the kernel lock of the node's
// tables.
func (nt *nodeTables) quarantinePorts(ctx context.Context) {
	names, due := nt.portsToQuarantine()
	if !due {
		return
	}
	down, up, err := nt.cfg.Host.Quarantine(context.WithoutCancel(ctx), names)
	if err != nil {
		nt.log.Error("bridge ports could not be set down or up; agent retries", "ports", names, "err", err)
		return
	}
	if len(down) > 0 {
		nt.log.Error("bridge ports are down: policies select pods there, and could not be written", "ports", down)
	}
	if len(up) > 0 {
		nt.log.Info("bridge ports are up again, with their policies", "ports", up)
	}
	nt.desired.mu.Lock()
	defer nt.desired.mu.Unlock()
	nt.portsOpen, nt.desired.stats.Quarantined = len(names) == 0, len(names)
}

// portsToQuarantine returns the ports that must be down, all others up; false if nothing has changed.
func (nt *nodeTables) portsToQuarantine() (names []string, due bool) {
	nt.desired.mu.Lock()
	defer nt.desired.mu.Unlock()
	if nt.bridges != nil {
		for _, l := range nt.desired.local {
			if l.Point() == model.PointPort && nt.desired.index.Selected(l.Key()) && !slices.Contains(names, l.PolicyLink()) {
				names = append(names, l.PolicyLink())
			}
		}
	}
	return names, len(names) > 0 || !nt.portsOpen && len(nt.desired.local) > 0
}
