// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/endpoint/foreign"
	"github.com/weft-net/weft/internal/flow/export"
	"github.com/weft-net/weft/internal/ipam/blocks"
	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/node/advertise"
	"github.com/weft-net/weft/internal/node/cniconf"
	"github.com/weft-net/weft/internal/node/cniserver"
	"github.com/weft-net/weft/internal/node/guests"
	"github.com/weft-net/weft/internal/node/hostenv"
	"github.com/weft-net/weft/internal/node/inspect"
	"github.com/weft-net/weft/internal/node/membership"
	"github.com/weft-net/weft/internal/node/meshconf"
	"github.com/weft-net/weft/internal/node/migration"
	"github.com/weft-net/weft/internal/node/nodebgp"
	"github.com/weft-net/weft/internal/node/nodeipam"
	"github.com/weft-net/weft/internal/node/nodemesh"
	"github.com/weft-net/weft/internal/node/podnetwork"
	"github.com/weft-net/weft/internal/node/readiness"
	"github.com/weft-net/weft/internal/node/readygate"
	"github.com/weft-net/weft/internal/node/tunnelip"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/state"
	"github.com/weft-net/weft/internal/vm/node"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// partCalls is the name of the CNI server in the node's readiness.
const partCalls = "agent"

// build creates the components; close must be called also after an error.
func (a *agent) build() (err error) {
	if a.data, err = openDatastore(a.cfg); err != nil {
		return err
	}
	if a.data.facts != nil {
		a.data.facts.OnNodeCount = a.telemetry.known.setNodes
	}
	a.telemetry.readiness = readiness.New(partCalls)
	if placing(a.cfg) {
		a.telemetry.readiness = readiness.New(partCalls, cniconf.Component)
	}
	a.self = describe(a.cfg, &a.data)
	if err = errors.Join(a.self.settings.Check(), a.self.pods.Check(), a.self.settings.ReadNetConf()); err != nil {
		return err
	}
	if err = a.own.open(a.cfg); err != nil {
		return err
	}
	if err = a.telemetry.listen(a.cfg, a.own.ledger); err != nil {
		return err
	}
	if err = a.buildAddresses(); err != nil {
		return err
	}
	a.fast = a.buildFastPath()
	a.enforcement = a.buildPolicy()
	exports := export.NewSockets(a.cfg.Now)
	if a.exporters, err = buildExporters(a.cfg, a.telemetry.metrics, exports); err != nil {
		return err
	}
	a.flows = a.buildObserver(exports)
	if a.flowServer, err = a.buildFlowServer(); err != nil {
		return err
	}
	a.attachments = a.buildAttachments()
	return a.serve()
}

// describe returns the desired configuration of the node's networks.
func describe(cfg Config, d *datastore) description {
	var out description
	out.member = membership.Node{Name: cfg.Node, Cluster: d.cluster}
	out.pods = podnetwork.New(
		podnetwork.Config{Network: cfg.Network, Node: out.member, Cluster: d.snapshots(), ControllerApart: d.apart()},
	)
	network := cfg.Network
	if cfg.BGP.Socket != "" {
		network.Blackhole = true // routers send packets to all addresses of the node's prefixes here
	}
	out.settings = meshconf.New(meshconf.Config{
		Node: cfg.Node, StateDir: cfg.StateDir, Network: network, Flannel: cfg.Flannel, Backends: cfg.Backends,
		Kubernetes: d.kube != nil, Directory: d.dir != nil, Etcd: d.etcd != nil, Random: rand.Reader, Log: cfg.Log,
	})
	return out
}

// buildAddresses creates the allocators and the mesh. Without a datastore there is no block engine, and `type:
// whereabouts` executes a program.
func (a *agent) buildAddresses() (err error) {
	cfg, d := a.cfg, &a.data
	if d.objectStore != nil {
		a.blocks, err = blocks.Open(blocks.Config{
			Objects: d.Objects(), Node: cfg.Node, MachineID: hostenv.MachineID(cfg.Install.HostRoot),
			Dir: filepath.Join(cfg.StateDir, "blocks"), Log: cfg.Log,
			Now: cfg.Now, After: cfg.After, Random: rand.Reader, ReadFile: os.ReadFile,
			Nodes: a.self.member.All, Labels: a.self.member.Labels, Unrouted: !cfg.Network.FromPools(),
			Flush:    func(_ context.Context, addrs []netip.Addr) error { return nodeipam.Flush(a.own.host, addrs) },
			VMsKnown: d.kube != nil, SeparateController: d.apart(),
		})
		if err != nil {
			return err
		}
		measureBlocks(a.telemetry.metrics, a.blocks)
		if err := nodeipam.Restore(a.blocks, a.own.ledger, a.own.boot, a.own.lost); err != nil {
			return err
		}
	}
	a.addresses = nodeipam.New(nodeipam.Config{
		Name: cfg.Node, Network: cfg.Network, AddressDir: cfg.AddressDir, Engine: a.blocks, Records: a.own.ledger,
		Facts:   d.facts,
		Plugins: a.self.pods.Plugins, Metrics: a.telemetry.metrics, Log: cfg.Log, After: cfg.After,
	})
	a.overlay = nodemesh.New(a.overlayConfig())
	a.bgp = a.buildBGP()
	if a.pooled() {
		a.tunnels = tunnelip.Open(tunnelip.Config{
			StateDir: cfg.StateDir, Boot: a.own.boot, Network: cfg.Network, Engine: a.blocks, Facts: d.facts,
			Node:    a.self.member,
			Changed: a.overlay.Changed, Log: cfg.Log, After: cfg.After,
		})
	}
	return nil
}

// pooled reports whether weft's own pods get addresses from pools.
func (a *agent) pooled() bool { return a.blocks != nil && a.self.pods.FromPools() }

// overlayConfig returns the mesh's configuration, with functions of components that need not exist yet.
func (a *agent) overlayConfig() nodemesh.Config {
	cfg := nodemesh.Config{
		Facts: a.data.facts, Host: a.own.host, StateDir: a.cfg.StateDir, Network: a.cfg.Network, Settings: a.self.settings,
		Records:  a.own.ledger,
		Marked:   func() []attach.DSCPMark { return a.attachments.attacher.DSCPMarks() },
		Own:      func() []netip.Addr { return a.tunnels.All() },
		Repaired: a.telemetry.repaired(), Quiet: func() []watch.Owner { return a.enforcement.quiet() }, Env: a.cfg.Env,
		Log: a.cfg.Log, Now: a.cfg.Now, After: a.cfg.After,
	}
	if a.forwarder != nil {
		cfg.Forwarder = a.forwarder
	}
	if a.pooled() {
		cfg.Relays = func() []mesh.Relay { return relays(a.attachments.mover) }
	}
	cfg.Passed = func() {
		if a.pooled() {
			a.attachments.mover.Passed()
		}
		if a.bgp != nil {
			a.bgp.Passed()
		}
	}
	if a.speaksBGP() {
		cfg.Learned = func() ([]state.Fragment, bool) { return a.bgp.Learned() }
	}
	return cfg
}

// speaksBGP reports whether the node has a BGP speaker.
func (a *agent) speaksBGP() bool {
	return a.cfg.BGP.Socket != "" && a.followsCluster() && !a.cfg.Network.Mode.OtherVendor()
}

// buildBGP creates the agent's part in BGP; nil without.
func (a *agent) buildBGP() *nodebgp.Node {
	if !a.speaksBGP() {
		return nil
	}
	n := nodebgp.New(nodebgp.Config{
		Node: a.cfg.Node, Socket: a.cfg.BGP.Socket, SecretNamespace: a.cfg.BGP.SecretNamespace,
		SecretInterval: time.Duration(a.cfg.BGP.SecretInterval), Backend: a.cfg.Network.Encapsulation == mesh.BackendBGP, Objects: a.data.Objects(), Facts: a.data.facts,
		Topology: a.overlay.Topology, Changed: a.overlay.Changed, Log: a.cfg.Log, Now: a.cfg.Now, After: a.cfg.After,
		Report: a.nodeEvent(),
	})
	if a.telemetry.metrics != nil {
		measureBGP(a.telemetry.metrics, n)
	}
	return n
}

// buildAttachments creates the components that attach pods and VMs, and those that follow their attachments.
func (a *agent) buildAttachments() attachments {
	var out attachments
	cfg, d := a.cfg, &a.data
	out.vms = node.New(node.Config{
		Admit: a.enforcement.admit,
		Phase1: phase1.Config{
			Records: a.own.ledger.VMs(), Dir: filepath.Join(cfg.StateDir, "vm"), Boot: a.own.boot, Step: cfg.Failpoint,
		},
		Attachments: a.own.ledger, LockSandbox: a.hold, Own: a.own.namespaces, Called: a.called,
		Deletions: a.own.deletions, Log: cfg.Log, Now: cfg.Now, After: cfg.After,
	})
	if a.telemetry.metrics != nil {
		measureVMs(a.telemetry.metrics, out.vms)
	}
	out.guests = guests.New(guests.Config{
		Records: a.own.ledger, Lock: a.hold, Deletions: a.own.deletions, Log: cfg.Log, After: cfg.After,
	})
	conflicts := advertise.Conflicts{Cluster: d.cluster, FromPools: a.self.pods.FromPools(), Kubernetes: d.kube}
	out.attacher = attach.New(attach.Config{
		Records:    a.own.ledger,
		Host:       a.own.host,
		Planners:   planners(cfg),
		Allocators: allocators(cfg, a.own.leases, a.blocks),
		Node:       a.ofNode,
		Gates:      func(ctx context.Context, urls []string) error { return readygate.Wait(ctx, urls, cfg.After) },
		Exec: &foreign.Runner{
			Env: cfg.Env, Stderr: cfg.Stderr, Root: cfg.Install.HostRoot, Timeout: cfg.PluginTime,
		},
		Reaper:         a.own.reaper,
		Log:            cfg.Log,
		Now:            cfg.Now,
		Boot:           a.own.boot,
		Failpoint:      cfg.Failpoint,
		Repaired:       a.telemetry.repaired(),
		Event:          podEvent(d.kube, cfg.Log),
		Policy:         a.enforcement.guard(),
		VMs:            out.vms,
		VMChanged:      a.vmMoved,
		RemoteConflict: conflicts.Check,
	})
	out.advertised = advertise.NewPodIPs(advertise.PodIPsConfig{
		Permitted: cfg.Network.PodAddresses, Node: a.self.member, Facts: d.facts, Attachments: out.attacher,
		Kubernetes: d.kube, Directory: d.dir,
		Log: cfg.Log, After: cfg.After,
	})
	if a.pooled() {
		out.mover = migration.New(migration.Config{
			Node: cfg.Node, Attachments: out.attacher, Records: a.own.ledger, Objects: d.Objects(), Cluster: d.facts.Cluster,
			Holds: a.blocks.Holds, Host: a.own.host, Log: cfg.Log, Now: cfg.Now, After: cfg.After,
			RelaysChanged: a.overlay.Changed, RelayFile: filepath.Join(cfg.StateDir, migration.RelayFileName),
			Event: podEvent(d.kube, cfg.Log),
		})
	}
	out.inspector = &inspect.Inspector{
		Records: a.own.ledger, Attachments: out.attacher, Directory: a.addresses.Directory, Log: cfg.Log,
	}
	return out
}

// serve creates the CNI server; from then on callers wait.
func (a *agent) serve() (err error) {
	vms := a.attachments.vms
	server := cniserver.Config{
		Socket: a.cfg.Socket, Attacher: a.attachments.attacher, Records: a.own.ledger, Log: a.cfg.Log, Now: a.cfg.Now,
		Failpoint: a.cfg.Failpoint, Events: a.own.events,
		Own:   a.own.namespaces,
		Ready: a.answering, Called: a.called, Fit: a.self.pods.Fit,
		PluginNames: builtinNames(planners(a.cfg), allocators(a.cfg, a.own.leases, a.blocks)),
		Verbs: map[string]cniserver.Verb{
			// Programs of the previous version send this to the CNI socket; the next version can drop it.
			node.VerbStart: vms.Start, node.VerbStop: vms.Stop, node.VerbList: vms.List,
		},
	}
	networks(a.cfg, &a.data, &server)
	if a.server, err = cniserver.New(server); err != nil { // also creates the sockets' directory
		return err
	}
	measureCNI(a.telemetry.metrics, a.server)
	return a.listenAdmin()
}

// settings returns the agent's configuration including its flags. It contains no passwords and keys.
func settings(c Config) config.Config {
	return config.Config{
		Node: c.Node, Socket: c.Socket, StateDir: c.StateDir, StoreDir: c.StoreDir, AddressDir: c.AddressDir,
		Kubernetes: c.Kubernetes, Network: c.Network, BGP: c.BGP, LoadBalancer: c.LoadBalancer, Flannel: c.Flannel,
		Runtime: c.Runtime, Install: c.Install, Metrics: c.Metrics,
	}
}

// relays returns the relays of VMs that migrate to this node, for the mesh.
func relays(m *migration.Mover) []mesh.Relay {
	var out []mesh.Relay
	for _, r := range m.Relays() {
		out = append(out, mesh.Relay(r))
	}
	return out
}
