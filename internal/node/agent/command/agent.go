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
	"github.com/weft-net/weft/internal/node/agent"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// What keeps the agent small, beside agentconf.GCPercent.
const (
	agentMemory   = 24 << 20 // bytes; a soft limit, above it the collector works harder
	clusterMemory = 36 << 20 // the same for an agent that knows a cluster of Kubernetes
	// nodeMemory is added for each of its nodes beyond the first thousand: a limit below what is in use would have the
	// collector run without end.
	nodeMemory   = 8 << 10
	usualCluster = 1000
	// podMemory is added for each pod that policies may be about: twice what it takes.
	podMemory = 3 << 9
)

func newAgentCmd(env ui.Env, further []mesh.Backend) *cobra.Command {
	c := config.Default()
	var file string
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run this node's agent: it answers CNI calls and keeps the routes to other nodes",
		Long: `Run the agent of the network namespace it is started in, until SIGTERM.

It answers the calls that the runtime's plugin weft-cni hands over. With --store-dir, --in-cluster or
--kubeconfig it also knows the cluster, and keeps the routes to the pods of the other nodes. Pods keep
their network while it is away. --config names a file; flags are set over it. It prints "ready" on
stdout when it answers.`,
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
	f.StringVar(&file, "config", "", "`FILE` of the configuration, YAML or JSON (default: none)")
	f.StringVar(&c.Node, "node", "", "the node's `NAME` in the cluster (default: $NODE_NAME, or the host name)")
	f.StringVar(&c.Socket, "socket", c.Socket, "`PATH` of the socket that weft-cni calls")
	f.StringVar(&c.StateDir, "state-dir", c.StateDir, "`DIR` of the ledger of attachments")
	f.StringVar(&c.StoreDir, "store-dir", "", "`DIR` of the cluster's manifests (default: no mesh)")
	f.StringVar(&c.AddressDir, "address-dir", c.AddressDir, "`DIR` of host-local's addresses where a network names none")
	f.StringVar(&c.Network.Encapsulation, "encapsulation", c.Network.Encapsulation,
		"how packets get from node to node: host-gw, vxlan, udp, ipip or wireguard, or a back end of your own")
	f.StringVar((*string)(&c.Network.Addresses), "addresses", "", "what pods are numbered from: podCIDRs or pools")
	f.StringVar(&c.Network.WireguardKeyFile, "wireguard-key-file", c.Network.WireguardKeyFile,
		"`FILE` of the node's private key for wireguard, made when it is missing")
	f.BoolVar(&c.Kubernetes.InCluster, "in-cluster", false, "reach the API server as a pod does")
	f.StringVar(&c.Kubernetes.Kubeconfig, "kubeconfig", "", "reach the API server by this `FILE`")
	f.TextVar(&c.LogLevel, "log-level", slog.LevelInfo, "least `LEVEL` that is logged: debug, info, warn, error")
	f.StringVar(&c.ReadyFile, "ready-file", "", "write the process id to `FILE` once calls are answered")
	f.StringVar(&c.Metrics.Address, "metrics-address", "", "serve /metrics, /readyz and /loglevel at `ADDRESS`")
	f.StringVar(&c.Runtime.Endpoint, "runtime-endpoint", "",
		"the runtime's CRI `SOCKET`, as unix:///run/containerd/containerd.sock, or auto")
	return cmd
}

// sized makes room for what is known of a large cluster.
func sized(c config.Config) func(nodes, pods int) {
	limit := int64(agentMemory)
	if c.Kubernetes != (config.Kubernetes{}) {
		limit = clusterMemory
	}
	return func(nodes, pods int) {
		debug.SetMemoryLimit(limit + int64(max(0, nodes-usualCluster))*nodeMemory + int64(pods)*podMemory)
	}
}

func runAgent(ctx context.Context, env ui.Env, c config.Config, file string, further []mesh.Backend) error {
	level := new(slog.LevelVar)
	level.Set(c.LogLevel)
	log := slog.New(slog.NewTextHandler(env.Stderr, &slog.HandlerOptions{Level: level}))
	return agent.Run(ctx, agent.Config{
		Node: c.Node, Socket: c.Socket, StateDir: c.StateDir, StoreDir: c.StoreDir, AddressDir: c.AddressDir,
		Kubernetes: c.Kubernetes, Etcd: c.Etcd, Network: c.Network, Flannel: c.Flannel, Multus: c.Multus, Policy: c.Policy,
		VirtualMachines: c.VirtualMachines, Runtime: c.Runtime, Install: c.Install, Metrics: c.Metrics,
		File: file, Level: level, Log: log, PodUID: env.Getenv("POD_UID"), Getenv: env.Getenv, Version: env.Version,
		Backends: further, Env: []string{"PATH=" + env.Getenv("PATH")}, Stderr: env.Stderr,
		Now: time.Now, After: time.After, Sized: sized(c), Step: agentStep(env), PluginTime: pluginTime(env),
		Ready: func() {
			fmt.Fprintln(env.Stdout, "ready")
			if c.ReadyFile == "" {
				return
			}
			if err := os.WriteFile(c.ReadyFile, []byte(fmt.Sprintln(os.Getpid())), 0o644); err != nil {
				log.Error("ready file", "err", err)
			}
		},
	})
}
