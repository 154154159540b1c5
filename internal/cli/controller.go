// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/agent"
	"github.com/weft-net/weft/internal/config"
)

// controllerMemory is a soft limit, above which the collector works harder.
const controllerMemory = 32 << 20 // bytes

func newControllerCmd(env Env) *cobra.Command {
	c := config.Default()
	var file, metricsAddress string
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Run what is to be done once in a cluster of Kubernetes about pools of addresses",
		Long: `Run the controller until SIGTERM. It makes and changes pools of addresses, by what the configuration, people and
Calico's objects say and agents ask for, says which nodes are gone, and writes what holds of pools into their status. It is a
program beside the agents because its account may write what theirs may not. One of several leads, by a Lease.

Where the cluster's objects are in a directory or an etcd, or an agent has a kubeconfig of its own, agents do this themselves.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := complete(&c, file, env, cmd.Flags()); err != nil {
				return err
			}
			c.Metrics.Address = metricsAddress // the configuration's is the agent's
			debug.SetGCPercent(agentGCPercent)
			debug.SetMemoryLimit(controllerMemory)
			level := new(slog.LevelVar)
			level.Set(c.LogLevel)
			name := env.Getenv("POD_NAME")
			if name == "" {
				name = "controller on " + c.Node
			}
			return agent.RunController(cmd.Context(), agent.Config{
				Node: c.Node, Kubernetes: c.Kubernetes, Network: c.Network, Metrics: c.Metrics, Level: level,
				Log:    slog.New(slog.NewTextHandler(env.Stderr, &slog.HandlerOptions{Level: level})),
				Getenv: env.Getenv, Version: env.Version, Now: time.Now, After: time.After,
				Ready: func() { fmt.Fprintln(env.Stdout, "ready") },
			}, name)
		},
	}
	f := cmd.Flags()
	f.StringVar(&file, "config", "", "`FILE` of the agents' configuration, YAML or JSON (default: none)")
	f.StringVar(&c.Node, "node", "", "`NAME` of the node that it runs on (default: $NODE_NAME, or the host name)")
	f.BoolVar(&c.Kubernetes.InCluster, "in-cluster", false, "reach the API server as a pod does")
	f.StringVar(&c.Kubernetes.Kubeconfig, "kubeconfig", "", "reach the API server by this `FILE`")
	f.TextVar(&c.LogLevel, "log-level", slog.LevelInfo, "least `LEVEL` that is logged: debug, info, warn, error")
	f.StringVar(&metricsAddress, "metrics-address", "", "serve /metrics, /healthz and /loglevel at `ADDRESS`")
	return cmd
}
