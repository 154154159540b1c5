// SPDX-License-Identifier: Apache-2.0

// Package command is the command line of weft-docker.
package command

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/boot"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/docker/driver"
	"github.com/weft-net/weft/internal/failpoint"
)

// Run runs the command line and returns the exit code. name is the name for the usage text.
func Run(ctx context.Context, name string, env ui.Env) int { return ui.Run(ctx, New(name, env), env) }

// New returns the command line.
func New(name string, env ui.Env) *cobra.Command {
	c := driver.Config{
		Rand: rand.Reader, Now: time.Now, After: time.After, Failpoint: failpoint.FromFile(env.Getenv(failpoint.FileEnv), env.Stderr),
	}
	level := slog.LevelInfo
	cmd := &cobra.Command{
		Use: "weft-docker", Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: name},
		Short: "Run the network driver by which Docker's containers are on the networks of pods",
		Long: `Runs a network driver and IPAM driver of Docker (a plugin of the container network model) until SIGTERM.
Containers of its networks get addresses of the cluster's pools from the agent of this node, and are subject to
network policies by their labels. The agent must be running on the node.

While it runs, docker network create -d weft --ipam-driver weft NAME creates such a network.`,
		Example: "  weft docker\n" +
			"  weft docker --docker-host unix:///run/user/1000/docker.sock",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			id, err := boot.ID()
			if err != nil {
				return err
			}
			c.Boot = id
			c.Log = slog.New(slog.NewTextHandler(env.Stderr, &slog.HandlerOptions{Level: level}))
			d, err := driver.New(c)
			if err != nil {
				return err
			}
			return d.Run(cmd.Context(), func() { fmt.Fprintln(env.Stdout, "ready") })
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Socket, "socket", "/run/docker/plugins/weft.sock",
		"plugin `SOCKET`; its name without .sock is the driver's name in Docker")
	f.StringVar(&c.Host, "docker-host", "unix:///run/docker.sock", "`URL` of dockerd's API")
	f.StringVar(&c.ConfDir, "conf-dir", "/etc/cni/net.d", "`DIR` of the network configuration that the agent writes")
	f.StringVar(&c.StateDir, "state-dir", "/var/lib/weft/docker", "`DIR` in which networks and endpoints are recorded")
	f.StringVar(&c.RunDir, "run-dir", "/run/weft/docker", "`DIR` of the network namespaces of containers that are not started yet")
	ui.LogLevelFlag(f, &level)
	return cmd
}
