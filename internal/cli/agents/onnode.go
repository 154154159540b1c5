// SPDX-License-Identifier: Apache-2.0

package agents

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weft-net/weft/internal/cli/kube/podexec"
	"github.com/weft-net/weft/internal/cli/ui"
)

// OnNode adds the flag --node to a command about this node, and those that choose a cluster: with them it runs in the pod
// of that node's agent, or on that node of a lab, with its output and exit code. local are its flags that name an agent of
// this node.
func OnNode(env ui.Env, cmd *cobra.Command, local ...string) {
	s := &Source{Env: env}
	s.RemoteFlags(cmd, cmd.Flags())
	s.NodeFlag(cmd, cmd.Flags(), "`NAME` of a node of the cluster: run it there")
	ExcludeLocal(cmd, local...)
	here := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		node := s.chosenNode()
		switch {
		case node == "" && s.cluster():
			return ui.Misusef("name it with --node", "the node is missing")
		case node == "" || slices.ContainsFunc(local, cmd.Flags().Changed):
			return here(cmd, args)
		}
		c, err := s.Open(cmd.Context())
		if err != nil {
			return err
		}
		if watch := cmd.Flag("watch"); watch != nil && watch.Changed && c.server != nil {
			// The API server does not end what it executes when its caller ends.
			return ui.Misusef("use kubectl exec -it, with a terminal", "--watch is not possible with --node")
		}
		return c.run(cmd.Context(), env, node, words(cmd, args))
	}
}

// words returns the command line of a command without weft itself and without the flags that choose where it runs.
func words(cmd *cobra.Command, args []string) []string {
	out := strings.Fields(cmd.CommandPath())[len(strings.Fields(cmd.Root().CommandPath())):]
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !slices.Contains(remoteFlags(), f.Name) {
			out = append(out, "--"+f.Name+"="+f.Value.String())
		}
	})
	return append(append(out, "--"), args...)
}

// run runs weft on a node, with the standard output and error of env. The error has the exit code of weft.
func (c Cluster) run(ctx context.Context, env ui.Env, node string, args []string) error {
	if c.server != nil {
		pods, err := c.server.List(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(pods, func(p podexec.AgentPod) bool { return p.Node == node })
		if i < 0 {
			return errNoPod
		}
		code, err := c.server.Run(ctx, pods[i], append([]string{c.Program()}, args...), env.Stdout, env.Stderr)
		if err == nil && code != 0 {
			err = ui.Exit(code)
		}
		return err
	}
	if c.Dir == "" {
		return errNoPods()
	}
	cmd := exec.CommandContext(ctx, c.self, append([]string{"lab", "exec", "--dir", c.Dir, node, "--", c.self}, args...)...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = env.Stdout, env.Stderr, time.Second // what it executes may keep them open
	cmd.Env = append(os.Environ(), ui.NodeVariable+"=")                         // it is there
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return ui.Exit(exit.ExitCode())
	}
	return err
}
