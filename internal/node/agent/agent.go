// SPDX-License-Identifier: Apache-2.0

// Package agent builds the parts of a node's agent, starts and stops them, and does nothing else.
//
//	weft-cni → cniserver → attach → ledger, kernel        calls
//	store → facts → reconcile → kernel                    the mesh, when there is a store
//
// # Order
//
// Nothing is answered before what a killed agent left is undone. When it stops, calls in
// flight are finished, then what their DELs left behind; pods stay as they are.
package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/cluster/store/etcd"
	"github.com/weft-net/weft/internal/cluster/store/kube"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/endpoint/foreign"
	"github.com/weft-net/weft/internal/endpoint/ledger"
	"github.com/weft-net/weft/internal/flannel"
	"github.com/weft-net/weft/internal/ipam/blocks"
	"github.com/weft-net/weft/internal/ipam/dhcp/lease"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/node/adopted"
	"github.com/weft-net/weft/internal/node/cniserver"
	"github.com/weft-net/weft/internal/node/exclusive"
	"github.com/weft-net/weft/internal/node/guests"
	"github.com/weft-net/weft/internal/node/hostenv"
	"github.com/weft-net/weft/internal/node/move"
	"github.com/weft-net/weft/internal/node/policy"
	"github.com/weft-net/weft/internal/node/policystatus"
	"github.com/weft-net/weft/internal/node/readygate"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/vm/node"
)

// drainLimit is how long the clean-up behind the last DELs may take when the agent stops; Recover does what is left.
const drainLimit = 5 * time.Second

// Config is an agent's.
type Config struct {
	// Node is the node's name in the cluster.
	Node   string
	Socket string
	// StateDir holds the ledger. It is best on a file system that does not outlive a boot.
	StateDir string
	// StoreDir holds the cluster's manifests; without it there is no mesh.
	StoreDir string
	// AddressDir is host-local's where a configuration names none; empty is the reference plugin's.
	AddressDir string
	// The parts of the configuration file that are about what lies around the agent; the zero values are "nothing of it".
	Kubernetes      config.Kubernetes
	Etcd            config.Etcd
	Network         config.Network
	Flannel         config.Flannel
	Multus          config.Multus
	Policy          config.Policy
	VirtualMachines config.VirtualMachines
	Runtime         config.Runtime
	Install         config.Install
	Metrics         config.Metrics
	// Backends are mesh back ends beside weft's own (pkg/backend).
	Backends []mesh.Backend
	// File is the configuration file, which is followed for Level's sake; both may be missing.
	File  string
	Level *slog.LevelVar
	// PodUID is the agent's own pod's, empty when it is none.
	PodUID  string
	Version string
	Log     *slog.Logger
	// Getenv is asked for what a pod is told of its API server.
	Getenv func(string) string
	// Env and Stderr are what foreign plugins get.
	Env    []string
	Stderr io.Writer
	Now    func() time.Time
	After  func(time.Duration) <-chan time.Time
	// Ready, which may be nil, is called once callers are answered.
	Ready func()
	// Sized, which may be nil, is told how many nodes the cluster has, and about how many pods are kept for policies.
	Sized func(nodes, pods int)
	// PluginTime is how long one execution of a foreign plugin may take; 0 is foreign's default.
	PluginTime time.Duration
	// Step, which may be nil, is attach's and the machines' hook for fault tests.
	Step func(name string) error
}

// agent holds the parts.
type agent struct {
	cfg      Config
	claims   *exclusive.Claims
	host     *kernel.Conn
	ledger   *ledger.Ledger
	reaper   *kernel.Reaper
	attacher *attach.Attacher
	own      []*netns.NS
	server   *cniserver.Server
	leases   *lease.Keeper
	ends     *ends                  // nil where pods are not numbered from pools
	blocks   *blocks.Engine         // nil without a place for the cluster's objects
	store    objectStore            // nil when there is no mesh
	dir      *dir.Store             // the store, when it is a directory
	kube     *kube.Store            // the store, when it is Kubernetes
	etcd     *etcd.Shelf            // when it is an etcd
	netConf  flannel.NetConf        // in mode flannel
	vtepSeed string                 // random, for what this node publishes first
	mover    *move.Mover            // nil where pods are not numbered from pools
	faults   *policystatus.Reporter // nil without an API server
	policy   *policy.Enforcer       // nil where policies are nobody's business
	// adopted are nil where pods are not numbered from pools, or policies are nobody's business.
	adopted  *adopted.Endpoints
	machines *node.Machines
	guests   *guests.Server
	known    sizes
	around
}

// Run runs the agent of the network namespace that the process is in, until ctx ends.
func Run(ctx context.Context, cfg Config) error {
	a := &agent{cfg: cfg, vtepSeed: randomText(rand.Reader)}
	err := a.build()
	if err == nil {
		err = a.run(ctx)
	}
	return errors.Join(err, a.close())
}

// build makes the parts; what was made is closed by close, also after an error.
func (a *agent) build() error {
	cfg := a.cfg
	var err error
	if err = a.openStore(); err != nil {
		return err
	}
	if err = errors.Join(a.checkBackends(), a.checkPools(), a.readNetConf()); err != nil {
		return err
	}
	if err = errors.Join(a.claim(), a.prepare()); err != nil {
		return err
	}
	if a.host, err = kernel.Dial(nil); err != nil {
		return fmt.Errorf("network namespace of the node: %w", err)
	}
	if a.ledger, err = ledger.Open(cfg.StateDir); err != nil {
		return err
	}
	boot, err := hostenv.BootID()
	if err != nil {
		return err
	}
	if a.own, err = hostenv.Namespaces(); err != nil {
		return err
	}
	if a.leases, err = a.keeper(boot); err != nil {
		return err
	}
	if a.blocks, err = a.engine(boot, a.objects()); err != nil {
		return err
	}
	if a.blocks != nil && a.fromPools() {
		a.ends = a.openEnds(boot)
	}
	a.reaper = kernel.NewReaper(a.host, cfg.Log)
	if a.policy = a.enforcer(); a.policy != nil && a.ends != nil {
		a.adopted = adopted.Open(adopted.Config{
			Node: cfg.Node, StateDir: cfg.StateDir, Boot: boot, Records: a.ledger, Objects: a.objects(), Cluster: a.facts.Cluster,
			Policy: a.policy, Log: cfg.Log, After: cfg.After,
		})
	}
	a.measurePolicies()
	a.machines = a.virtual(boot)
	a.guests = guests.New(guests.Config{Records: a.ledger, Hold: a.hold, Log: cfg.Log, After: cfg.After})
	a.attacher = attach.New(attach.Config{
		Memory: a.ledger, Host: a.host, Planners: a.planners(), Allocators: a.allocators(), Node: a.ofNode, Gates: a.gates,
		Exec: &foreign.Runner{Env: cfg.Env, Stderr: cfg.Stderr, Root: cfg.Install.HostRoot, Timeout: cfg.PluginTime}, Reaper: a.reaper,
		Log: cfg.Log, Now: cfg.Now, Boot: boot, Step: cfg.Step, Repaired: a.repaired(), Event: a.driftEvent(), Guard: a.guard(),
		Machines: a.machines, Moved: a.machineMoved, Elsewhere: a.elsewhere,
	})
	a.mover = a.newMover()
	server := cniserver.Config{
		Socket: cfg.Socket, Attacher: a.attacher, Memory: a.ledger, Log: cfg.Log, Now: cfg.Now, Own: a.own, Ready: a.answering, Called: a.called,
		Verbs: a.verbs(), Alone: a.alone(),
	}
	a.networks(&server)
	a.server, err = cniserver.New(server)
	return err
}

// run starts the parts and stops them in the reverse order.
func (a *agent) run(ctx context.Context) error {
	behind, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	parts, behind := errgroup.WithContext(behind)
	parts.Go(func() error { return ended(behind, a.reaper.Run(behind)) })
	if err := a.machines.Load(ctx); err != nil {
		a.cfg.Log.Error("machines of an agent before this one", "err", err)
	}
	report, err := a.attacher.Recover(ctx)
	if err != nil {
		a.cfg.Log.Error("recovery is incomplete", "err", err)
	}
	a.cfg.Log.Info("recovered", "report", report.String())
	for _, problem := range report.Problems {
		a.cfg.Log.Error("recovery", "err", problem)
	}
	if err := a.machines.Recover(ctx); err != nil {
		a.cfg.Log.Error("machines of an agent before this one", "err", err)
	}
	a.adopt()
	a.guests.Start(behind)
	defer a.guests.Wait()
	parts.Go(func() error {
		defer stop()
		serving, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(behind, cancel)() // another part failed
		return errors.Join(a.server.Run(serving), a.drain())
	})
	parts.Go(func() error { return ended(behind, a.admin(behind)) })
	parts.Go(func() error { return ended(behind, a.repair(behind)) })
	parts.Go(func() error { return ended(behind, a.share(behind)) })
	parts.Go(func() error { return ended(behind, a.keepPools(behind)) })
	a.surround(behind, parts)
	parts.Go(func() error { return ended(behind, a.enforce(behind)) })
	if a.mover != nil {
		parts.Go(func() error { return ended(behind, a.mover.Run(behind)) })
	}
	if a.meshes() {
		parts.Go(func() error { return ended(behind, a.mesh(behind)) })
	} else if a.meshed() {
		parts.Go(func() error { return ended(behind, a.unmesh(behind, a.passes())) })
	}
	if a.etcd != nil {
		parts.Go(func() error { return ended(behind, a.enlist(behind)) })
	}
	if a.ends != nil {
		parts.Go(func() error { return ended(behind, a.ends.run(behind)) })
		parts.Go(func() error { return ended(behind, a.makePools(behind)) })
	}
	if a.adopted != nil {
		parts.Go(func() error { return ended(behind, a.adopted.Run(behind)) })
	}
	if a.kube != nil {
		parts.Go(func() error { return ended(behind, a.kube.Run(behind)) })
		parts.Go(func() error { return ended(behind, awaitServer(behind, a.kube, a.apart(), a.cfg)) })
	}
	return parts.Wait()
}

// claim makes the state directory and the network namespace this agent's own.
func (a *agent) claim() (err error) {
	a.claims, err = exclusive.Claim(a.cfg.StateDir, a.cfg.Log, a.cfg.After)
	return err
}

// hold waits for a sandbox's turn.
func (a *agent) hold(ctx context.Context, container string) (func(), error) {
	return a.attacher.Hold(ctx, container)
}

// gates waits for the readiness gates of Calico's plugin.
func (a *agent) gates(ctx context.Context, urls []string) error {
	return readygate.Wait(ctx, urls, a.cfg.After)
}

// called counts a call that is over.
func (a *agent) called(verb string, err error, took time.Duration) {
	var f *model.Fault
	code := uint(0)
	switch {
	case errors.As(err, &f):
		code = uint(f.Code)
	case err != nil:
		code = uint(model.CodeInternal)
	}
	a.metrics.Call(verb, code, took)
	a.bringing()
	a.tellMarked()
	if t := a.topology.Load(); t != nil && slices.Contains(t.Bridged, 6) && err == nil && (verb == "ADD" || verb == "DEL") {
		a.tellMesh()
	}
}

// drain lets the clean-up behind the last DELs finish; the reaper still runs.
func (a *agent) drain() error {
	ctx, cancel := context.WithTimeout(context.Background(), drainLimit)
	defer cancel()
	if err := a.attacher.Drain(ctx); err != nil {
		a.cfg.Log.Warn("clean-up is left to the next start", "err", err)
	}
	return nil
}

// ended drops the error of a part that ended because it was told to.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

func (a *agent) close() error {
	var errs []error
	if a.web != nil {
		_ = a.web.Close() // most often it is closed
	}
	if a.machines != nil {
		errs = append(errs, a.machines.Close())
	}
	for _, ns := range a.own {
		errs = append(errs, ns.Close())
	}
	if a.leases != nil {
		errs = append(errs, a.leases.Close())
	}
	if a.etcd != nil {
		errs = append(errs, a.etcd.Close())
	}
	if a.ledger != nil {
		errs = append(errs, a.ledger.Close())
	}
	if a.host != nil {
		errs = append(errs, a.host.Close())
	}
	return errors.Join(append(errs, a.claims.Close())...)
}
