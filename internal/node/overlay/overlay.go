// SPDX-License-Identifier: Apache-2.0

// Package overlay runs the mesh on this node: it hands the reconciler what belongs to this node alone (tunnel
// addresses, routed and marked pods, relays of machines that migrate), keeps the topology that is in force, and says
// which MTU pods get.
package overlay

import (
	"cmp"
	"context"
	"crypto/rand"
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
)

// mtuLimit is how long an ADD waits for the MTU that fits into the mesh; clearPeriod is the pause after routes that
// could not be removed.
const mtuLimit, clearPeriod = 5 * time.Second, 30 * time.Second

// Records are the attachments that are recorded on this node.
type Records interface {
	List() ([]attach.Record, error)
}

// Config is an Overlay's.
type Config struct {
	// Facts is nil without a cluster.
	Facts    *facts.Facts
	Host     *kernel.Conn
	StateDir string
	Network  config.Network
	Settings *meshconf.Settings
	Records  Records
	// Marked are the pods whose packets to the outside of the cluster bear a code point, Own the node's addresses at its
	// tunnels' ends.
	Marked func() []attach.Marked
	Own    func() []netip.Addr
	// Relays, which may be nil, are the machines that come from other nodes; Passed, which may be nil, is called after
	// each pass.
	Relays   func() []mesh.Relay
	Passed   func()
	Repaired func([]string)
	// Quiet are the tables of nft that change all the time.
	Quiet func() []watch.Own
	Env   []string
	Log   *slog.Logger
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
}

// Overlay is the mesh on this node.
type Overlay struct {
	cfg Config
	// topology is the mesh that is in force, nil before the first pass; planned holds a token when there is a new one.
	topology atomic.Pointer[mesh.Topology]
	planned  notify.Chan
	// changed holds a token when the mesh is to plan with other things of this node's.
	changed notify.Chan
	// marked are the pods whose code points the mesh knows, nil before it asked.
	marked atomic.Pointer[[]attach.Marked]
	// reconciler is nil before Run, and where there is no mesh of weft's.
	reconciler atomic.Pointer[reconcile.Reconciler]
}

// New returns an Overlay.
func New(cfg Config) *Overlay {
	return &Overlay{cfg: cfg, planned: notify.New(), changed: notify.New()}
}

// Topology is the mesh that is in force, nil before the first pass.
func (o *Overlay) Topology() *mesh.Topology { return o.topology.Load() }

// Status is what is in force, and whether the kernel agrees; an error before the first pass.
func (o *Overlay) Status() (reconcile.Status, error) {
	var s reconcile.Status
	if r := o.reconciler.Load(); r != nil {
		s = r.Status()
	}
	if s.Self == "" {
		return s, model.Faultf(model.CodeNotAvailable, "try again in a moment",
			"the mesh has not been compared with the kernel yet")
	}
	return s, nil
}

// Planned holds a token when there is a new topology.
func (o *Overlay) Planned() <-chan struct{} { return o.planned }

// Run keeps the node's routes to its peers, until ctx ends. Over another vendor's network that vendor keeps them.
func (o *Overlay) Run(ctx context.Context) error {
	cfg := o.passes()
	cfg.Own, cfg.Routed, cfg.OwnNews = o.cfg.Own, o.routedPods, o.changed
	cfg.Marked, cfg.Relays = o.markedPods, o.cfg.Relays
	tunnels := tunnel.New(tunnel.Config{
		Env: o.cfg.Env, Random: rand.Reader, Log: o.cfg.Log, Now: o.cfg.Now, After: o.cfg.After,
	})
	defer tunnels.Close()
	cfg.Runner = tunnels
	if o.cfg.Network.Mode == config.ModeMultus {
		return o.clear(ctx, cfg)
	}
	r := reconcile.New(cfg)
	o.reconciler.Store(r)
	return r.Run(ctx)
}

// Clear removes what an earlier agent left that kept the mesh itself: its routes would compete with the other vendor's.
func (o *Overlay) Clear(ctx context.Context) error { return o.clear(ctx, o.passes()) }

// passes is how the node's routes to its peers are kept.
func (o *Overlay) passes() reconcile.Config {
	return reconcile.Config{
		Facts: o.cfg.Facts, Host: o.cfg.Host, StatusFile: o.statusFile(),
		Mesh: o.cfg.Settings.Mesh(), Repaired: o.cfg.Repaired, Log: o.cfg.Log, Now: o.cfg.Now, After: o.cfg.After,
		Exceptions: masqagent.Follow(o.cfg.Network.MasqAgentConfig, o.cfg.Log), Passed: o.passed, Quiet: o.cfg.Quiet(),
	}
}

func (o *Overlay) statusFile() string { return filepath.Join(o.cfg.StateDir, reconcile.StatusFile) }

// Left reports whether an earlier agent kept the node's routes to its peers.
func (o *Overlay) Left() bool {
	_, err := os.Stat(o.statusFile())
	return err == nil
}

// PodMTU is what fits into the mesh, 0 where that is any.
func (o *Overlay) PodMTU(ctx context.Context) (int, error) {
	if o.cfg.Facts == nil || o.cfg.Facts.Cluster() == nil {
		return 0, nil
	}
	c := o.cfg.Facts.Cluster()
	answers, err := kernel.Spaces{Host: o.cfg.Host}.Observe(ctx, mesh.Observe(c, o.cfg.Settings.Mesh()))
	if err != nil {
		return 0, err
	}
	t, err := mesh.Plan(c, o.cfg.Settings.Mesh(), answers)
	return t.PodMTU(), err
}

// MTU is the MTU of the pods' interfaces where their configuration leaves it open: the configured one, else what fits
// into the mesh; 0 is any.
func (o *Overlay) MTU() int {
	if mtu := o.cfg.Network.MTU; mtu != 0 || o.cfg.Network.Mode == config.ModeMultus {
		return mtu
	}
	if t := o.topology.Load(); t != nil {
		return t.PodMTU()
	}
	ctx, cancel := context.WithTimeout(context.Background(), mtuLimit)
	defer cancel()
	if o.cfg.Facts != nil { // the first pass is not over, and perhaps the cluster is not even known
		select {
		case <-o.cfg.Facts.Synced():
		case <-ctx.Done():
		}
	}
	mtu, err := o.PodMTU(ctx)
	if err != nil {
		o.cfg.Log.Warn("the MTU of pods is not known, and the kernel's is taken", "err", err)
	}
	return mtu
}

func (o *Overlay) clear(ctx context.Context, cfg reconcile.Config) error {
	for {
		err := reconcile.Clear(ctx, cfg)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		o.cfg.Log.Warn("routes of weft's own network are still there", "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-o.cfg.After(clearPeriod):
		}
	}
}

// passed notes what is in force, for those who tell other nodes of it. While the node's own address is lost, what was
// said stays said.
func (o *Overlay) passed(s reconcile.Status) {
	t := s.Topology
	if len(t.Lost) > 0 {
		return
	}
	before := o.topology.Swap(&t)
	if err := netfiles.WriteMTU(o.cfg.Network.MTUFile, cmp.Or(o.cfg.Network.MTU, t.PacketMTU()), o.cfg.Log); err != nil {
		o.cfg.Log.Error("MTU file", "err", err) // the next pass tries again
	}
	if slices.Contains(t.Bridged, 6) && (before == nil || !slices.Contains(before.Bridged, 6)) {
		o.Changed() // of the routed pods, of which this pass did not know that they matter
	}
	o.planned.Notify()
	if o.cfg.Passed != nil {
		o.cfg.Passed()
	}
}

// Changed has the mesh plan anew with what is this node's own.
func (o *Overlay) Changed() {
	o.changed.Notify()
}

// markedPods are the pods whose packets to the outside of the cluster bear a code point.
func (o *Overlay) markedPods() []mesh.Marked {
	all := o.cfg.Marked()
	o.marked.Store(&all)
	var out []mesh.Marked
	for _, m := range all {
		out = append(out, mesh.Marked(m))
	}
	return out
}

// CheckMarked has the mesh plan anew where there are other such pods than it planned with.
func (o *Overlay) CheckMarked() {
	if told := o.marked.Load(); told != nil && !slices.Equal(*told, o.cfg.Marked()) {
		o.Changed()
	}
}

// routedPods are the IPv6 addresses of pods without a bridge, as long as there is a bridge of pods that were there
// before the design was changed.
func (o *Overlay) routedPods() []netip.Addr {
	t := o.topology.Load()
	if t == nil || !slices.Contains(t.Bridged, 6) {
		return nil
	}
	records, err := o.cfg.Records.List()
	if err != nil {
		o.cfg.Log.Warn("pods on a bridge may not find others of this node", "err", err)
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

// Bridged reports whether there is a bridge of pods of earlier designs, for which routed pods matter.
func (o *Overlay) Bridged() bool {
	t := o.topology.Load()
	return t != nil && slices.Contains(t.Bridged, 6)
}
