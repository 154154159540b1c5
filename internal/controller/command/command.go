// SPDX-License-Identifier: Apache-2.0

// Package command is the command line of weft-controller, which runs the controller as a program of its own: beside
// agents that have no rights to do what it does.
package command

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/agentconf"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cluster/config"
)

// controllerMemory is a soft limit, above which the collector works harder.
const controllerMemory = 32 << 20 // bytes

// Run runs the command line and returns the exit code. name is how the user has called it: the program's name, or a
// command of another program that executes this one.
func Run(ctx context.Context, name string, env ui.Env) int { return ui.Run(ctx, New(name, env), env) }

// New is the command line as users meet it.
func New(name string, env ui.Env) *cobra.Command {
	c := config.Default()
	var file, metricsAddress string
	cmd := &cobra.Command{
		Use: "weft-controller", Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: name},
		Short: "Run what is to be done once in a cluster of Kubernetes about pools of addresses",
		Long: `Run the controller until SIGTERM. It makes and changes pools of addresses, by what the configuration,
people and Calico's objects say and agents ask for, says which nodes are gone, and writes what holds of pools into
their status. It is a program beside the agents because its account may write what theirs may not. One of several
leads, by a Lease.

Where the cluster's objects are in a directory or an etcd, or an agent has a kubeconfig of its own, agents do this
themselves.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := agentconf.Complete(&c, file, env.Getenv, cmd.Flags()); err != nil {
				return err
			}
			c.Metrics.Address = metricsAddress // the configuration's is the agent's
			debug.SetGCPercent(agentconf.GCPercent)
			debug.SetMemoryLimit(controllerMemory)
			level := new(slog.LevelVar)
			level.Set(c.LogLevel)
			identity := env.Getenv("POD_NAME")
			if identity == "" {
				identity = "controller on " + c.Node
			}
			log := slog.New(slog.NewTextHandler(env.Stderr, &slog.HandlerOptions{Level: level}))
			return serve(cmd.Context(), serving{
				c: c, identity: identity, version: env.Version, getenv: env.Getenv, level: level, log: log, now: time.Now,
				after: time.After,
				ready: func() { fmt.Fprintln(env.Stdout, "ready") },
			})
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
