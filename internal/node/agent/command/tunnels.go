// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/agentconf"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/node/agentlock"
	"github.com/weft-net/weft/internal/node/tunnel"
	"github.com/weft-net/weft/internal/node/tunnel/process"
)

// tunnelsCommand is the name of the command that an agent executes.
const tunnelsCommand = "tunnels"

// newTunnelsCmd returns the command of the process that outlives the agent. Only agents execute it.
func newTunnelsCmd(env ui.Env) *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:    tunnelsCommand,
		Short:  "Run the tunnels that forward packets in user space, for this node's agents",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(cmd *cobra.Command, _ []string) error { return runTunnels(cmd.Context(), env, socket) },
	}
	cmd.Flags().StringVar(&socket, "socket", "", "`PATH` of the socket, which is open as descriptor 3")
	return cmd
}

func runTunnels(ctx context.Context, env ui.Env, socket string) error {
	signal.Ignore(syscall.SIGPIPE) // the log may have been the ended agent's pipe
	file := os.NewFile(process.ListenerFD, socket)
	l, err := net.FileListener(file)
	if err != nil {
		return fmt.Errorf("descriptor %d: %w", process.ListenerFD, err)
	}
	_ = file.Close()
	listener, ok := l.(*net.UnixListener)
	if !ok {
		return fmt.Errorf("descriptor %d: %s is no Unix socket", process.ListenerFD, l.Addr())
	}
	debug.SetGCPercent(agentconf.GCPercent)
	debug.SetMemoryLimit(agentLimit)
	log := slog.New(slog.NewTextHandler(env.Stderr, nil))
	return process.NewServer(process.ServerConfig{
		Listener: listener, Socket: socket, Program: env.Version,
		Tunnels: tunnel.New(tunnel.Config{Random: rand.Reader, Log: log, Now: time.Now, After: time.After}),
		Locked:  func() bool { return process.Locked(agentlock.NamespaceSocket) }, Log: log, Now: time.Now, After: time.After,
	}).Run(ctx)
}

// tunnelProcess returns how an agent runs tunnels in user space: in a process that outlives it. The first process of a
// container has no such child: all processes of the container end with it.
func tunnelProcess(env ui.Env, log *slog.Logger) func(socket string) *process.Client {
	if os.Getpid() == 1 {
		return nil
	}
	return func(socket string) *process.Client {
		return process.NewClient(process.ClientConfig{
			Socket: socket, Program: []string{env.Self, tunnelsCommand, "--socket", socket}, Stderr: os.Stderr, Log: log,
			Now: time.Now,
		})
	}
}
