// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/agentconf"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/failpoint"
	"github.com/weft-net/weft/internal/node/agent"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// Limits that keep the agent small, in addition to agentconf.GCPercent.
const (
	agentLimit   = 24 << 20 // bytes; a soft limit, above which the garbage collector runs more often
	clusterLimit = 36 << 20 // the same for an agent in a Kubernetes cluster
	// nodeLimit is added for each node beyond the first thousand: with a limit below the memory in use the garbage
	// collector would run without end. A node has 1.8 KiB (TestHeapPerNode in node/reconcile), and whole passes
	// need as much again, of which clusterLimit has room for more than half (TestStartResident in node/agent).
	nodeLimit    = 1 << 10
	usualCluster = 1000
	// podLimit is added for each pod that policies may select: twice its size.
	podLimit = 3 << 9
)

func newAgentCmd(env ui.Env, further []mesh.Backend) *cobra.Command {
	c := config.Default()
	var file string
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run this node's agent, which serves CNI calls and maintains the routes to other nodes",
		Long: `Runs the agent of the network namespace in which it is started, until SIGTERM.

The agent serves the CNI calls that weft-cni forwards. With a datastore (--store-dir, --in-cluster or --kubeconfig) it
also maintains the routes to the pods of other nodes, allocates addresses and enforces network policies. Pods keep their
network while the agent is not running. Flags override the configuration file (--config). The agent prints "ready" on
stdout when it serves calls.`,
		Example: "  weft agent --config /etc/weft/weft.yaml\n" +
			"  weft agent --node node1 --store-dir /run/weft/lab/store --encapsulation vxlan",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := agentconf.Complete(&c, file, env.Getenv, cmd.Flags()); err != nil {
				if file == "" {
					err = ui.UsageError(err) // all of it was flags
				}
				return err
			}
			debug.SetGCPercent(agentconf.GCPercent)
			sized(c)(0, 0)
			return runAgent(cmd.Context(), env, c, file, further)
		},
	}
	f := cmd.Flags()
	f.StringVar(&file, "config", "", "`FILE` of the configuration, YAML or JSON; flags override it (default: none)")
	f.StringVar(&c.Node, "node", "", "`NAME` of the node in the cluster (default: $NODE_NAME, or the host name)")
	f.StringVar(&c.Socket, "socket", c.Socket, "`PATH` of the socket that weft-cni calls")
	f.StringVar(&c.StateDir, "state-dir", c.StateDir, "`DIR` of the ledger of attachments")
	f.StringVar(&c.StoreDir, "store-dir", "", "`DIR` of the cluster's manifests (default: no mesh)")
	f.StringVar(&c.AddressDir, "address-dir", c.AddressDir, "`DIR` of host-local's addresses, for networks without dataDir")
	f.StringVar(&c.Network.Encapsulation, "encapsulation", c.Network.Encapsulation,
		"`BACKEND` between nodes: host-gw, vxlan, udp, ipip or wireguard, or a custom one, DOMAIN/NAME")
	f.StringVar((*string)(&c.Network.Addresses), "addresses", "", "`MODE` of allocating pod addresses: podCIDRs, one prefix per node, or pools (default: podCIDRs)")
	f.StringVar(&c.Network.WireguardKeyFile, "wireguard-key-file", c.Network.WireguardKeyFile,
		"`FILE` of the node's private key for wireguard, generated if it is missing")
	f.BoolVar(&c.Kubernetes.InCluster, "in-cluster", false, "connect to the API server with the pod's service account")
	f.StringVar(&c.Kubernetes.Kubeconfig, "kubeconfig", "", "kubeconfig `FILE` of the API server")
	ui.LogLevelFlag(f, &c.LogLevel)
	f.StringVar(&c.ReadyFile, "ready-file", "", "`FILE` to which the process ID is written when the agent is ready")
	f.StringVar(&c.Metrics.Address, "metrics-address", "", "HOST:PORT `ADDRESS` for /metrics, /readyz and /loglevel (default: none)")
	f.StringVar(&c.Runtime.Endpoint, "runtime-endpoint", "",
		"CRI `SOCKET` of the runtime, for example unix:///run/containerd/containerd.sock, or auto (default: none)")
	return cmd
}

// sized raises the memory limit for a large cluster.
func sized(c config.Config) func(nodes, pods int) {
	limit := int64(agentLimit)
	if c.Kubernetes != (config.Kubernetes{}) {
		limit = clusterLimit
	}
	return func(nodes, pods int) {
		debug.SetMemoryLimit(limit + int64(max(0, nodes-usualCluster))*nodeLimit + int64(pods)*podLimit)
	}
}

func runAgent(ctx context.Context, env ui.Env, c config.Config, file string, further []mesh.Backend) error {
	level := new(slog.LevelVar)
	level.Set(c.LogLevel)
	log := slog.New(slog.NewTextHandler(env.Stderr, &slog.HandlerOptions{Level: level}))
	return agent.Run(ctx, agent.Config{
		Node: c.Node, Socket: c.Socket, StateDir: c.StateDir, StoreDir: c.StoreDir, AddressDir: c.AddressDir,
		Kubernetes: c.Kubernetes, Etcd: c.Etcd, Network: c.Network, Flannel: c.Flannel, Multus: c.Multus, Policy: c.Policy,
		Observe: c.Observe, BGP: c.BGP, LoadBalancer: c.LoadBalancer,
		VirtualMachines: c.VirtualMachines, Runtime: c.Runtime, Install: c.Install, Metrics: c.Metrics,
		File: file, Level: level, Log: log, PodUID: env.Getenv("POD_UID"), Getenv: env.Getenv, Version: env.Version,
		Backends: further, Env: []string{"PATH=" + env.Getenv("PATH")}, Stderr: env.Stderr,
		Now: time.Now, After: time.After, Sized: sized(c), Failpoint: failpoint.FromFile(env.Getenv(failpoint.FileEnv), env.Stderr), PluginTime: pluginTime(env),
		Doctor: examine, Tunnels: tunnelProcess(env, log),
		Ready: func() {
			fmt.Fprintln(env.Stdout, "ready")
			if c.ReadyFile == "" {
				return
			}
			if err := os.WriteFile(c.ReadyFile, []byte(fmt.Sprintln(os.Getpid())), 0o644); err != nil {
				log.Error("ready file could not be written", "err", err)
			}
		},
	})
}
