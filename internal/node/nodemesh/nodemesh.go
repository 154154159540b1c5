// SPDX-License-Identifier: Apache-2.0

// Package nodemesh runs the mesh on this node: it passes this node's own parts (tunnel addresses, routed and marked
// pods, relays of migrating VMs) to the reconciler, publishes the topology that is in force, and computes the MTU of
// pods.
package nodemesh

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/cluster/facts"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/masqagent"
	"github.com/weft-net/weft/internal/node/meshconf"
	"github.com/weft-net/weft/internal/node/netfiles"
	"github.com/weft-net/weft/internal/node/reconcile"
	"github.com/weft-net/weft/internal/node/tunnel"
	"github.com/weft-net/weft/internal/notify"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/state"
)

// mtuLimit is how long an ADD waits for the MTU that fits into the mesh; clearPeriod is the pause after a failed
// removal of routes.
const mtuLimit, clearPeriod = 5 * time.Second, 30 * time.Second

// Records lists the attachments that are recorded on this node.
type Records interface {
	List() ([]attach.Record, error)
}

// Config configures a Mesh.
type Config struct {
	// Facts is nil without a cluster.
	Facts    *facts.Facts
	Host     *kernel.Conn
	StateDir string
	Network  config.Network
	Settings *meshconf.Settings
	Records  Records
	// DSCPMark returns the pods whose packets to destinations outside the cluster have a DSCP; Own returns the node's
	// tunnel addresses.
	Marked func() []attach.DSCPMark
	Own    func() []netip.Addr
	// Relays, which may be nil, returns the VMs that are migrating from other nodes; Passed, which may be nil, is called
	// after each pass.
	Relays   func() []mesh.Relay
	Passed   func()
	Repaired func([]string)
	// Learned, which may be nil, returns the routes learned by BGP, and whether they are known (reconcile.Config).
	Learned func() ([]state.Fragment, bool)
	// Quiet returns the nft tables that change all the time.
	Quiet func() []watch.Owner
	// Forwarder, which may be nil, runs tunnels in user space in a process of its own.
	Forwarder tunnel.Forwarder
	Env       []string
	Log       *slog.Logger
	Now       func() time.Time
	After     func(time.Duration) <-chan time.Time
}

// Mesh is the mesh on this node.
type Mesh struct {
	cfg Config
	// topology is the topology that is in force, nil before the first pass; planned holds a token when it has changed.
	topology atomic.Pointer[mesh.Topology]
	planned  notify.Chan
	// changed holds a token when this node's own parts have changed.
	changed notify.Chan
	// marked are the marked pods of the last plan, nil before it.
	marked atomic.Pointer[[]attach.DSCPMark]
	// reconciler is nil before Run, and where weft has no mesh.
	reconciler atomic.Pointer[reconcile.Reconciler]
}

// New returns a Mesh.
func New(cfg Config) *Mesh {
	return &Mesh{cfg: cfg, planned: notify.New(), changed: notify.New()}
}

// Topology returns the topology that is in force, nil before the first pass.
func (m *Mesh) Topology() *mesh.Topology { return m.topology.Load() }

// Status returns the mesh's state and whether the kernel agrees; an error before the first pass.
func (m *Mesh) Status() (reconcile.Status, error) {
	var s reconcile.Status
	if r := m.reconciler.Load(); r != nil {
		s = r.Status()
	}
	if s.Self == "" {
		return s, model.Errorf(model.CodeNotAvailable, "try again in a moment",
			"the mesh has not been reconciled yet")
	}
	return s, nil
}

// Planned receives a token when the topology has changed.
func (m *Mesh) Planned() <-chan struct{} { return m.planned }

// Run reconciles the node's routes to its peers until ctx ends. In the modes multus and policy it only removes weft's own routes:
// another vendor's network has its own.
func (m *Mesh) Run(ctx context.Context) error {
	cfg := m.passes()
	cfg.Own, cfg.Routed, cfg.OwnChanged = m.cfg.Own, m.routedPods, m.changed
	cfg.Marked, cfg.Relays, cfg.Learned = m.markedPods, m.cfg.Relays, m.cfg.Learned
	tunnels := tunnel.New(tunnel.Config{
		Forwarder: m.cfg.Forwarder, Env: m.cfg.Env, Random: rand.Reader, Log: m.cfg.Log, Now: m.cfg.Now, After: m.cfg.After,
	})
	defer tunnels.Close()
	cfg.Runner = tunnels
	if m.cfg.Network.Mode.OtherVendor() {
		return m.clear(ctx, cfg)
	}
	r := reconcile.New(cfg)
	m.reconciler.Store(r)
	return r.Run(ctx)
}

// Clear removes the routes of an earlier agent with its own mesh, which would compete with the other vendor's.
func (m *Mesh) Clear(ctx context.Context) error { return m.clear(ctx, m.passes()) }

// passes returns the reconciler's configuration without this node's own parts.
func (m *Mesh) passes() reconcile.Config {
	return reconcile.Config{
		Facts: m.cfg.Facts, Host: m.cfg.Host, StatusFile: m.statusFile(),
		Mesh: m.cfg.Settings.Mesh(), Repaired: m.cfg.Repaired, Log: m.cfg.Log, Now: m.cfg.Now, After: m.cfg.After,
		Exceptions: masqagent.Follow(m.cfg.Network.MasqAgentConfig, m.cfg.Log), Passed: m.passed, Quiet: m.cfg.Quiet(),
	}
}

func (m *Mesh) statusFile() string { return filepath.Join(m.cfg.StateDir, reconcile.StatusFile) }

// HasStatusFile reports whether an earlier agent managed the node's routes to its peers.
func (m *Mesh) HasStatusFile() bool {
	_, err := os.Stat(m.statusFile())
	return err == nil
}

// PodMTU returns the largest MTU that fits into the mesh, 0 if there is no limit.
func (m *Mesh) PodMTU(ctx context.Context) (int, error) {
	if m.cfg.Facts == nil || m.cfg.Facts.Cluster() == nil {
		return 0, nil
	}
	c := m.cfg.Facts.Cluster()
	answers, err := kernel.Spaces{Host: m.cfg.Host}.Observe(ctx, mesh.Observe(c, m.cfg.Settings.Mesh()))
	if err != nil {
		return 0, err
	}
	t, err := mesh.Plan(c, m.cfg.Settings.Mesh(), answers)
	return t.PodMTU(), err
}

// MTU returns the MTU of pods whose network configuration has none: the agent's configured one, else what fits into the
// mesh; 0 is no limit.
func (m *Mesh) MTU() int {
	if mtu := m.cfg.Network.MTU; mtu != 0 || m.cfg.Network.Mode.OtherVendor() {
		return mtu
	}
	if t := m.topology.Load(); t != nil {
		return t.PodMTU()
	}
	ctx, cancel := context.WithTimeout(context.Background(), mtuLimit)
	defer cancel()
	if m.cfg.Facts != nil { // the first pass is not finished, and the cluster may not be known
		select {
		case <-m.cfg.Facts.Synced():
		case <-ctx.Done():
		}
	}
	mtu, err := m.PodMTU(ctx)
	if err != nil {
		m.cfg.Log.Warn("MTU of the mesh is not known, and pods get the kernel's default", "err", err)
	}
	return mtu
}

func (m *Mesh) clear(ctx context.Context, cfg reconcile.Config) error {
	for {
		err := reconcile.Clear(ctx, cfg)
		if m.cfg.Forwarder != nil {
			err = errors.Join(err, m.cfg.Forwarder.Keep(ctx, nil))
		}
		if err == nil || ctx.Err() != nil {
			return nil
		}
		m.cfg.Log.Warn("routes of weft's own network could not be removed", "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-m.cfg.After(clearPeriod):
		}
	}
}

// passed stores the topology that is in force and announces it. While the node's own address is missing, the last one
// stays advertised.
func (m *Mesh) passed(s reconcile.Status) {
	t := s.Topology
	if len(t.LostFamilies) > 0 {
		return
	}
	before := m.topology.Swap(&t)
	if err := netfiles.WriteMTU(m.cfg.Network.MTUFile, cmp.Or(m.cfg.Network.MTU, t.PacketMTU()), m.cfg.Log); err != nil {
		m.cfg.Log.Error("MTU file could not be written", "err", err) // the next pass retries
	}
	if slices.Contains(t.BridgedFamilies, 6) && (before == nil || !slices.Contains(before.BridgedFamilies, 6)) {
		m.Changed() // this pass did not include the routed pods
	}
	m.planned.Notify()
	if m.cfg.Passed != nil {
		m.cfg.Passed()
	}
}

// Changed requests a new plan with this node's own parts.
func (m *Mesh) Changed() {
	m.changed.Notify()
}

// markedPods returns the pods whose packets to destinations outside the cluster have a DSCP.
func (m *Mesh) markedPods() []mesh.DSCPMark {
	all := m.cfg.Marked()
	m.marked.Store(&all)
	var out []mesh.DSCPMark
	for _, m := range all {
		out = append(out, mesh.DSCPMark(m))
	}
	return out
}

// CheckMarked requests a new plan if the marked pods differ from those of the last plan.
func (m *Mesh) CheckMarked() {
	if last := m.marked.Load(); last != nil && !slices.Equal(*last, m.cfg.Marked()) {
		m.Changed()
	}
}

// routedPods returns the IPv6 addresses of pods without a bridge, as long as there is a bridge with pods from before
// the design was changed.
func (m *Mesh) routedPods() []netip.Addr {
	t := m.topology.Load()
	if t == nil || !slices.Contains(t.BridgedFamilies, 6) {
		return nil
	}
	records, err := m.cfg.Records.List()
	if err != nil {
		m.cfg.Log.Warn("routed pods could not be listed; pods on a bridge may not reach them", "err", err)
	}
	var out []netip.Addr
	for _, rec := range records {
		if rec.Result == nil || len(rec.Network.Plugins) == 0 || rec.Network.Plugins[0].Type == "bridge" {
			continue
		}
		for _, ip := range rec.Result.IPs {
			if addr := ip.Address.Addr(); addr.Is6() {
				out = append(out, addr)
			}
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// Bridged reports whether there is a bridge with pods of an earlier design, which need routes to routed pods.
func (m *Mesh) Bridged() bool {
	t := m.topology.Load()
	return t != nil && slices.Contains(t.BridgedFamilies, 6)
}
