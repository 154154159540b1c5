// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/agent"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/wire"
)

// What keeps the agent small. A call leaves about 200 KiB of garbage, so that with these the collector runs once in thirty
// calls.
const (
	agentGCPercent = 200
	agentMemory    = 24 << 20 // bytes; a soft limit, above it the collector works harder
)

func newAgentCmd(env Env) *cobra.Command {
	var cfg agent.Config
	var level slog.Level
	var readyFile string
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run this node's agent: it answers CNI calls and keeps the routes to other nodes",
		Long: `Run the agent of the network namespace it is started in, until SIGTERM.

It answers the calls that the runtime's plugin weft-cni hands over. With --store-dir it also keeps the
routes to the pods of the nodes whose manifests are there. Pods keep their network while it is away.
It prints "ready" on stdout when it answers.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cfg.Node == "" {
				name, err := os.Hostname()
				if err != nil {
					return fmt.Errorf("host name: %w", err)
				}
				cfg.Node = strings.ToLower(name) // as the kubelet does
			}
			if err := model.CheckName("--node", cfg.Node); err != nil {
				return err
			}
			debug.SetGCPercent(agentGCPercent)
			debug.SetMemoryLimit(agentMemory)
			cfg.Log = slog.New(slog.NewTextHandler(env.Stderr, &slog.HandlerOptions{Level: level}))
			cfg.Env, cfg.Stderr = []string{"PATH=" + env.Getenv("PATH")}, env.Stderr
			cfg.Now, cfg.After, cfg.Step = time.Now, time.After, agentStep(env)
			cfg.Ready = func() {
				fmt.Fprintln(env.Stdout, "ready")
				if readyFile == "" {
					return
				}
				if err := os.WriteFile(readyFile, []byte(fmt.Sprintln(os.Getpid())), 0o644); err != nil {
					cfg.Log.Error("ready file", "err", err)
				}
			}
			return agent.Run(cmd.Context(), cfg)
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Node, "node", "", "the node's `NAME` in the cluster (default: the host name)")
	f.StringVar(&cfg.Socket, "socket", wire.DefaultSocket, "`PATH` of the socket that weft-cni calls")
	f.StringVar(&cfg.StateDir, "state-dir", "/run/weft/agent", "`DIR` of the ledger of attachments")
	f.StringVar(&cfg.StoreDir, "store-dir", "", "`DIR` of the cluster's manifests (default: no mesh)")
	f.TextVar(&level, "log-level", slog.LevelInfo, "least `LEVEL` that is logged: debug, info, warn, error")
	f.StringVar(&readyFile, "ready-file", "", "write the process id to `FILE` once calls are answered")
	return cmd
}
