// SPDX-License-Identifier: Apache-2.0

// Package agent builds the parts of a node's agent, hands them to each other, starts and stops them, and does nothing
// else: what has logic of its own is a room beside this one.
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
	"errors"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/failpoint"
	"github.com/weft-net/weft/internal/ipam/blocks"
	"github.com/weft-net/weft/internal/node/advertise"
	"github.com/weft-net/weft/internal/node/cniserver"
	"github.com/weft-net/weft/internal/node/guests"
	"github.com/weft-net/weft/internal/node/inspect"
	"github.com/weft-net/weft/internal/node/membership"
	"github.com/weft-net/weft/internal/node/meshconf"
	"github.com/weft-net/weft/internal/node/move"
	"github.com/weft-net/weft/internal/node/nodeipam"
	"github.com/weft-net/weft/internal/node/overlay"
	"github.com/weft-net/weft/internal/node/podnet"
	"github.com/weft-net/weft/internal/node/tunnelip"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/vm/node"
)

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
	Step failpoint.Hook
}

// agent holds the parts.
type agent struct {
	cfg  Config
	data datastore
	own  base
	self description
	told telemetry

	blocks      *blocks.Engine // nil without a place for the cluster's objects
	addresses   *nodeipam.Node
	tunnels     *tunnelip.Addresses // nil where pods are not numbered from pools
	overlay     *overlay.Overlay
	enforcement enforcement
	attachments attachments
	server      *cniserver.Server
	admins      net.Listener  // nil where no socket can be
	ready       chan struct{} // closed once callers are answered
}

// description is how the node's networks are to be.
type description struct {
	member   membership.Node    // this node among the others
	pods     *podnet.Network    // weft's own pod network on it
	settings *meshconf.Settings // the mesh's
}

// attachments are what attaches pods and machines, and what follows their attachments.
type attachments struct {
	attacher   *attach.Attacher
	machines   *node.Machines
	guests     *guests.Server
	mover      *move.Mover // nil where pods are not numbered from pools: there other nodes could not find them
	advertised *advertise.PodIPs
	inspector  *inspect.Inspector
}

// Run runs the agent of the network namespace that the process is in, until ctx ends.
func Run(ctx context.Context, cfg Config) error {
	a := &agent{cfg: cfg, told: telemetry{known: sizes{report: cfg.Sized}}, ready: make(chan struct{})}
	err := a.build()
	if err == nil {
		err = a.run(ctx)
	}
	return errors.Join(err, a.close())
}

// placing reports whether the agent keeps the runtime's configuration.
func placing(c Config) bool {
	return c.Network.Mode != "" && c.Network.Mode != config.ModeNone
}

// close closes the parts, as far as they were made.
func (a *agent) close() error {
	a.told.close()
	if a.admins != nil {
		_ = a.admins.Close() // most often it is closed
	}
	var err error
	if m := a.attachments.machines; m != nil {
		err = m.Close()
	}
	return errors.Join(err, a.data.close(), a.own.close())
}
