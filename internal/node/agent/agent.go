// SPDX-License-Identifier: Apache-2.0

// Package agent creates a node's components, connects, starts and stops them, and has no other logic: that is in the
// packages next to this one.
//
//	weft-cni → cniserver → attach → ledger, kernel        calls
//	store → facts → reconcile → kernel                    the mesh, if there is a datastore
//
// # Order
//
// No call is served before the rollback of what a killed agent left. When the agent stops, it finishes running calls
// and then the cleanup of their DELs; pods are not changed.
package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"time"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/failpoint"
	"github.com/weft-net/weft/internal/flow/export"
	"github.com/weft-net/weft/internal/ipam/blocks"
	"github.com/weft-net/weft/internal/node/advertise"
	"github.com/weft-net/weft/internal/node/cniserver"
	"github.com/weft-net/weft/internal/node/fastpath"
	"github.com/weft-net/weft/internal/node/flowserver"
	"github.com/weft-net/weft/internal/node/guests"
	"github.com/weft-net/weft/internal/node/inspect"
	"github.com/weft-net/weft/internal/node/membership"
	"github.com/weft-net/weft/internal/node/meshconf"
	"github.com/weft-net/weft/internal/node/migration"
	"github.com/weft-net/weft/internal/node/nodebgp"
	"github.com/weft-net/weft/internal/node/nodeipam"
	"github.com/weft-net/weft/internal/node/nodemesh"
	"github.com/weft-net/weft/internal/node/nodestatus"
	"github.com/weft-net/weft/internal/node/observer"
	"github.com/weft-net/weft/internal/node/podnetwork"
	"github.com/weft-net/weft/internal/node/tunnel/process"
	"github.com/weft-net/weft/internal/node/tunnelip"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/vm/node"
)

// Config configures an agent.
type Config struct {
	// Node is the node's name in the cluster.
	Node   string
	Socket string
	// StateDir is the directory of the ledger. It should be on a file system that is empty after a boot.
	StateDir string
	// StoreDir is the directory of the cluster's manifests; without it there is no mesh.
	StoreDir string
	// AddressDir is the default directory of host-local; empty is the reference plugin's.
	AddressDir string
	// The sections of the configuration file for the agent's environment; zero values disable them.
	Kubernetes      config.Kubernetes
	Etcd            config.Etcd
	Network         config.Network
	BGP             config.BGP
	LoadBalancer    config.LoadBalancer
	Flannel         config.Flannel
	Multus          config.Multus
	Policy          config.Policy
	Observe         config.Observe
	VirtualMachines config.VirtualMachines
	Runtime         config.Runtime
	Install         config.Install
	Metrics         config.Metrics
	// Backends are mesh backends in addition to weft's own (pkg/backend).
	Backends []mesh.Backend
	// File is the configuration file, which is followed for Level; both may be missing.
	File  string
	Level *slog.LevelVar
	// PodUID is the UID of the agent's own pod, empty if it runs in none.
	PodUID  string
	Version string
	Log     *slog.Logger
	// Getenv returns the environment variables with which a pod finds its API server.
	Getenv func(string) string
	// Tunnels, which may be nil, connects to the process that runs tunnels in user space, and can start it; nil is this
	// process. It is called before anything is locked or changed (package tunnel/process).
	Tunnels func(socket string) *process.Client
	// Env and Stderr are passed to foreign plugins.
	Env    []string
	Stderr io.Writer
	Now    func() time.Time
	After  func(time.Duration) <-chan time.Time
	// Ready, which may be nil, is called when calls are served.
	Ready func()
	// Sized, which may be nil, is called with the number of nodes in the cluster and of pods kept for policies.
	Sized func(nodes, pods int)
	// Doctor, which may be nil, makes the checks of weft doctor with these settings that the agent does not make itself,
	// until ctx ends.
	Doctor func(ctx context.Context, settings config.Config) []nodestatus.Finding
	// PluginTime limits one execution of a foreign plugin; 0 is the default of package foreign.
	PluginTime time.Duration
	// Failpoint, which may be nil, is the failpoint of attach, of VMs and of the queue.
	Failpoint failpoint.Hook
}

// agent has the components.
type agent struct {
	cfg       Config
	data      datastore
	own       base
	self      description
	telemetry telemetry

	blocks      *blocks.Engine // nil without a datastore
	addresses   *nodeipam.Node
	tunnels     *tunnelip.Addresses // nil where pods get no addresses from pools
	bgp         *nodebgp.Node       // nil without BGP
	overlay     *nodemesh.Mesh
	enforcement enforcement
	fast        *fastpath.FastPath
	flows       *observer.Observer
	exporters   []*export.Exporter // of flows
	flowServer  *flowserver.Server // nil without observe.listen
	attachments attachments
	server      *cniserver.Server
	admins      net.Listener    // nil if the socket could not be created
	forwarder   *process.Client // nil without a process for tunnels in user space
	ready       chan struct{}   // closed when calls are served
}

// description is the desired configuration of the node's networks.
type description struct {
	member   membership.Node     // this node in the cluster
	pods     *podnetwork.Network // weft's own pod network on it
	settings *meshconf.Settings  // the mesh's
}

// attachments are the components that attach pods and VMs, and those that follow their attachments.
type attachments struct {
	attacher   *attach.Attacher
	vms        *node.Registry
	guests     *guests.Server
	mover      *migration.Mover // nil where pods get no addresses from pools, because VMs cannot migrate then
	advertised *advertise.PodIPs
	inspector  *inspect.Inspector
}

// Run runs the agent of the network namespace that the process is in, until ctx ends.
func Run(ctx context.Context, cfg Config) error {
	a := &agent{cfg: cfg, telemetry: telemetry{known: sizes{report: cfg.Sized}}, ready: make(chan struct{})}
	if cfg.Tunnels != nil {
		a.forwarder = cfg.Tunnels(filepath.Join(cfg.StateDir, process.SocketName))
	}
	defer a.forwarder.Close() // last, when the namespace's lock is released
	err := a.build()
	if err == nil {
		err = a.run(ctx)
	}
	return errors.Join(err, a.close())
}

// placing reports whether the agent writes the runtime's configuration.
func placing(c Config) bool {
	return c.Network.Mode != "" && c.Network.Mode != config.ModeNone
}

// close closes the components that exist.
func (a *agent) close() error {
	a.telemetry.close()
	if a.admins != nil {
		_ = a.admins.Close() // usually it is already closed
	}
	var err error
	if m := a.attachments.vms; m != nil {
		err = m.Close()
	}
	return errors.Join(err, a.data.close(), a.own.close())
}
