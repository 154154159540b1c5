// SPDX-License-Identifier: Apache-2.0

// Package command is the command line of weft-controller, which runs the controller as a separate program, with rights
// that agents do not have.
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

// softLimit is the soft memory limit of Go's garbage collector.
const softLimit = 32 << 20 // bytes

// Run runs the command line and returns the exit code. name is the name for the usage text: the program's, or a command
// of a program that executes this one.
func Run(ctx context.Context, name string, env ui.Env) int { return ui.Run(ctx, New(name, env), env) }

// New returns the command line.
func New(name string, env ui.Env) *cobra.Command {
	c := config.Default()
	var file, metricsAddress string
	cmd := &cobra.Command{
		Use: "weft-controller", Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: name},
		Short: "Run the controller of a Kubernetes cluster's address pools",
		Long: `Runs the controller until SIGTERM. It creates and updates pools of addresses from the configuration,
the objects of operators and of Calico, and the requests of agents, marks the blocks of deleted nodes as
orphaned, and writes conditions into the status of pools. It is a separate program because its service account
has rights that agents do not have. Of several instances one is the leader, by a Lease.

If the cluster's objects are in a directory or an etcd, or an agent has a kubeconfig of its own, agents do this
themselves.`,
		Example: "  weft controller --config /etc/weft/weft.yaml\n" +
			"  weft controller --kubeconfig /etc/kubernetes/admin.conf --metrics-address 127.0.0.1:9120",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := agentconf.Complete(&c, file, env.Getenv, cmd.Flags()); err != nil {
				return err
			}
			c.Metrics.Address = metricsAddress // the configuration's address is the agent's
			debug.SetGCPercent(agentconf.GCPercent)
			debug.SetMemoryLimit(softLimit)
			level := new(slog.LevelVar)
			level.Set(c.LogLevel)
			identity := env.Getenv("POD_NAME")
			if identity == "" {
				identity = "controller on " + c.Node
			}
			log := slog.New(slog.NewTextHandler(env.Stderr, &slog.HandlerOptions{Level: level}))
			return serve(cmd.Context(), options{
				c: c, identity: identity, version: env.Version, getenv: env.Getenv, level: level, log: log, now: time.Now,
				after: time.After,
				ready: func() { fmt.Fprintln(env.Stdout, "ready") },
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&file, "config", "", "`FILE` of the agents' configuration, YAML or JSON (default: none)")
	f.StringVar(&c.Node, "node", "", "`NAME` of the node on which it runs (default: $NODE_NAME, or the host name)")
	f.BoolVar(&c.Kubernetes.InCluster, "in-cluster", false, "connect to the API server with the pod's service account")
	f.StringVar(&c.Kubernetes.Kubeconfig, "kubeconfig", "", "kubeconfig `FILE` of the API server")
	ui.LogLevelFlag(f, &c.LogLevel)
	f.StringVar(&metricsAddress, "metrics-address", "", "HOST:PORT `ADDRESS` for /metrics, /healthz and /loglevel (default: none)")
	return cmd
}
