// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/node/adminapi"
)

// newRelayCmd connects stdin and stdout with the agent's admin socket: other commands execute it in the agents' pods.
func newRelayCmd(env Env) *cobra.Command {
	var stateDir string
	cmd := &cobra.Command{
		Use:    "relay",
		Short:  "Connect stdin and stdout with the agent's admin socket",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn, err := (&net.Dialer{}).DialContext(cmd.Context(), "unix", adminapi.InStateDir(stateDir))
			if err != nil {
				return fmt.Errorf("relay: %w", err)
			}
			defer func() { _ = conn.Close() }()
			socket, ok := conn.(*net.UnixConn)
			if !ok {
				return errors.New("relay: not a unix socket")
			}
			go func() {
				_, _ = io.Copy(socket, env.Stdin) // an error ends the answers, too
				_ = socket.CloseWrite()
			}()
			_, err = io.Copy(env.Stdout, socket)
			return err
		},
	}
	cmd.Flags().StringVar(&stateDir, "state-dir", env.Variable(ui.StateDirVariable, meshStateDir), "state `DIR` of the agent")
	return cmd
}
