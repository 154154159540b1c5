// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/masqagent"
	"github.com/weft-net/weft/internal/node/reconcile"
	"github.com/weft-net/weft/internal/node/tunnel"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// mtuLimit is how long an ADD waits to know what fits into the mesh.
const mtuLimit = 5 * time.Second

// mesh follows the store and keeps the node's routes to its peers, until ctx ends. Over another vendor's network that
// vendor keeps them.
func (a *agent) mesh(ctx context.Context) error {
	cfg := a.passes()
	cfg.Own, cfg.Routed, cfg.OwnNews = a.ends.all, a.routedPods, a.ownNews
	cfg.Marked = a.markedPods
	if a.mover != nil {
		cfg.Relays = a.relays
	}
	tunnels := tunnel.New(tunnel.Config{Env: a.cfg.Env, Random: rand.Reader, Log: a.cfg.Log, Now: a.cfg.Now, After: a.cfg.After})
	defer tunnels.Close()
	cfg.Runner = tunnels
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return ended(ctx, a.facts.Run(ctx)) })
	parts.Go(func() error {
		if a.cfg.Network.Mode == config.ModeMultus {
			return ended(ctx, a.unmesh(ctx, cfg))
		}
		return ended(ctx, reconcile.New(cfg).Run(ctx))
	})
	return parts.Wait()
}

// passes is how the node's routes to its peers are kept.
func (a *agent) passes() reconcile.Config {
	return reconcile.Config{
		Facts: a.facts, Host: a.host, StatusFile: a.meshStatus(),
		Mesh: a.meshConfig(), Repaired: a.repaired(), Log: a.cfg.Log, Now: a.cfg.Now, After: a.cfg.After,
		Exceptions: masqagent.Follow(a.cfg.Network.MasqAgentConfig, a.cfg.Log), Passed: a.passed, Quiet: a.quiet(),
	}
}

func (a *agent) meshStatus() string { return filepath.Join(a.cfg.StateDir, reconcile.StatusFile) }

// meshed tells whether an agent before kept the node's routes to its peers.
func (a *agent) meshed() bool {
	_, err := os.Stat(a.meshStatus())
	return err == nil
}

// podMTU is what fits into the mesh, 0 where that is any.
func (a *agent) podMTU(ctx context.Context) (int, error) {
	if a.facts == nil || a.facts.Cluster() == nil {
		return 0, nil
	}
	c := a.facts.Cluster()
	answers, err := kernel.Spaces{Host: a.host}.Observe(ctx, mesh.Observe(c, a.meshConfig()))
	if err != nil {
		return 0, err
	}
	t, err := mesh.Plan(c, a.meshConfig(), answers)
	return t.PodMTU(), err
}

// ownMTU is the MTU of the pods' interfaces where their configuration leaves it open: the configured one, else what fits into the
// mesh; 0 is any.
func (a *agent) ownMTU() int {
	if mtu := a.cfg.Network.MTU; mtu != 0 || a.cfg.Network.Mode == config.ModeMultus {
		return mtu
	}
	if t := a.topology.Load(); t != nil {
		return t.PodMTU()
	}
	ctx, cancel := context.WithTimeout(context.Background(), mtuLimit)
	defer cancel()
	if a.facts != nil { // the first pass is not over, and perhaps the cluster is not even known
		select {
		case <-a.facts.Synced():
		case <-ctx.Done():
		}
	}
	mtu, err := a.podMTU(ctx)
	if err != nil {
		a.cfg.Log.Warn("the MTU of pods is not known, and the kernel's is taken", "err", err)
	}
	return mtu
}

// writeMTUFile says to plugins of others what pods get, in the file and form of Calico's daemon.
func (a *agent) writeMTUFile(t mesh.Topology) error {
	path, mtu := a.cfg.Network.MTUFile, cmp.Or(a.cfg.Network.MTU, t.PacketMTU())
	if path == "" || mtu == 0 {
		return nil
	}
	text := strconv.Itoa(mtu)
	if have, err := os.ReadFile(path); err == nil && string(have) == text {
		return nil
	}
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = atomicfile.Write(path, []byte(text), 0o644, atomicfile.CrashSafe)
	}
	if err != nil {
		return model.Faultf(model.CodeIO, "", "network.mtuFile: %w", err)
	}
	a.cfg.Log.Info("MTU file", "path", path, "mtu", mtu)
	return nil
}

// unmesh takes away what an agent before has left that kept the mesh itself: its routes would compete with the other vendor's.
func (a *agent) unmesh(ctx context.Context, cfg reconcile.Config) error {
	for {
		err := reconcile.Clear(ctx, cfg)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		a.cfg.Log.Warn("routes of weft's own network are still there", "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-a.cfg.After(placePeriod):
		}
	}
}

// checkBackends refuses back ends that could be taken for weft's own or reach nobody, and the name of one that this program
// does not have.
func (a *agent) checkBackends() error {
	const hint = "name it DOMAIN/NAME, as example.org/relay, and give it the function Peer"
	for _, b := range a.cfg.Backends {
		if !model.OwnBackend(b.Name) || b.Peer == nil {
			return model.Faultf(model.CodeInvalidConf, hint, "back end %q cannot be added", b.Name)
		}
	}
	if !model.OwnBackend(a.cfg.Network.Encapsulation) {
		return nil
	}
	cfg := a.meshConfig()
	own, err := cfg.Find(a.cfg.Network.Encapsulation)
	if err == nil && own.Check != nil {
		if err = own.Check(cfg); err != nil {
			err = fmt.Errorf("back end %q: %w", own.Name, err)
		}
	}
	return err
}

// meshConfig is what the configuration says of the mesh.
func (a *agent) meshConfig() mesh.Config {
	cfg := a.clusterMesh()
	if a.cfg.Network.Mode == config.ModeFlannel {
		cfg = a.flannelMesh()
	}
	if a.cfg.Network.Interface != "auto" {
		cfg.Interface = a.cfg.Network.Interface
	}
	if a.publishing() || a.publishingVtep() {
		cfg.VtepSeed, cfg.VtepAlone = a.vtepSeed, !a.publishing()
	}
	return cfg
}

// clusterMesh is what the part network says of it.
func (a *agent) clusterMesh() mesh.Config {
	n := a.cfg.Network
	cfg := mesh.Config{
		Backend: n.Encapsulation, Blackhole: n.Blackhole, Brought: n.PodAddresses, Pools: n.FromPools(), Beside: n.Mode == config.ModeCluster && n.Design != config.DesignBridge,
		Vxlan: mesh.Vxlan{
			VNI: uint32(n.VNI), Port: uint16(n.VxlanPort), GBP: n.VxlanGBP, Learning: n.VxlanLearning,
			DirectRouting: n.DirectRouting, MTU: n.UnderlayMTU,
		},
		UDP: mesh.UDP{Port: uint16(n.UDPPort)}, IPIP: mesh.IPIP{DirectRouting: n.DirectRouting},
		Wireguard: mesh.Wireguard{
			ListenPort: uint16(n.WireguardPort), ListenPortV6: uint16(n.WireguardPortV6), MTU: n.UnderlayMTU, Mode: n.WireguardMode,
			KeyFile: n.WireguardKeyFile, PSKFile: n.WireguardPSKFile, PersistentKeepaliveInterval: int(time.Duration(n.WireguardKeepalive) / time.Second),
		},
	}
	if len(a.cfg.Backends) > 0 {
		cfg.Backends = slices.Concat(mesh.Backends(), a.cfg.Backends)
	}
	if n.Masquerade {
		cfg.Masquerade, cfg.Keep, cfg.PortsInOrder = n.ClusterCIDRs, n.NonMasqueradeCIDRs, !n.MasqueradeRandom
	}
	return cfg
}

// passed notes what is in force, for those who tell other nodes of it. While the node's own address is lost, what was said
// stays said.
func (a *agent) passed(s reconcile.Status) {
	t := s.Topology
	if len(t.Lost) > 0 {
		return
	}
	before := a.topology.Swap(&t)
	if err := a.writeMTUFile(t); err != nil {
		a.cfg.Log.Error("MTU file", "err", err) // the next pass tries again
	}
	if slices.Contains(t.Bridged, 6) && (before == nil || !slices.Contains(before.Bridged, 6)) {
		a.tellMesh() // of the routed pods, of which this pass did not know that they matter
	}
	a.planned.Notify()
	if a.mover != nil {
		a.mover.Passed()
	}
}

// randomText is 16 random bytes as text.
func randomText(random io.Reader) string {
	b := make([]byte, 16)
	if _, err := io.ReadFull(random, b); err != nil {
		return "" // no seed: addresses come from names
	}
	return hex.EncodeToString(b)
}
