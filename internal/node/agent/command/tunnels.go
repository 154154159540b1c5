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

// newTunnelsCmd returns the command of the process that outlives the agent. Agents execute it, and the container of the
// DaemonSet weft-tunnels.
func newTunnelsCmd(env ui.Env) *cobra.Command {
	var socket string
	var listen bool
	cmd := &cobra.Command{
		Use:    tunnelsCommand,
		Short:  "Run the tunnels that forward packets in user space, for this node's agents",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runTunnels(cmd.Context(), env, socket, listen)
		},
	}
	cmd.Flags().StringVar(&socket, "socket", "", "`PATH` of the socket")
	cmd.Flags().BoolVar(&listen, "listen", false,
		"create the socket, and wait for the next agent where the process would end (default: the socket is descriptor 3)")
	return cmd
}

func runTunnels(ctx context.Context, env ui.Env, socket string, listen bool) error {
	signal.Ignore(syscall.SIGPIPE) // the log may have been the ended agent's pipe
	open := inherited
	if listen {
		open = process.Listen
	}
	listener, err := open(socket)
	if err != nil {
		return fmt.Errorf("socket of the tunnels %q: %w", socket, err)
	}
	debug.SetGCPercent(agentconf.GCPercent)
	debug.SetMemoryLimit(agentLimit)
	log := slog.New(slog.NewTextHandler(env.Stderr, nil))
	return process.NewServer(process.ServerConfig{
		Listener: listener, Socket: socket, Program: env.Version,
		Tunnels: tunnel.New(tunnel.Config{Random: rand.Reader, Log: log, Now: time.Now, After: time.After}),
		Locked:  func() bool { return process.Locked(agentlock.NamespaceSocket) }, Permanent: listen,
		Log: log, Now: time.Now, After: time.After,
	}).Run(ctx)
}

// inherited returns the socket that the agent has opened.
func inherited(socket string) (*net.UnixListener, error) {
	file := os.NewFile(process.ListenerFD, socket)
	l, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d: %w", process.ListenerFD, err)
	}
	_ = file.Close()
	listener, ok := l.(*net.UnixListener)
	if !ok {
		return nil, fmt.Errorf("descriptor %d: %s is no Unix socket", process.ListenerFD, l.Addr())
	}
	return listener, nil
}

// tunnelProcess returns how an agent runs tunnels in user space: in a process that outlives it. The first process of a
// container starts none, because all processes of the container end with it: it uses one of another container if there
// is one, and runs the tunnels itself if there is none.
func tunnelProcess(env ui.Env, log *slog.Logger) func(socket string) *process.Client {
	return func(socket string) *process.Client {
		cfg := process.ClientConfig{Socket: socket, Stderr: os.Stderr, Log: log, Now: time.Now, After: time.After}
		if os.Getpid() == 1 {
			cfg.Local = tunnel.New(tunnel.Config{Random: rand.Reader, Log: log, Now: time.Now, After: time.After})
		} else {
			cfg.Program = []string{env.Self, tunnelsCommand, "--socket", socket}
		}
		return process.NewClient(cfg)
	}
}
