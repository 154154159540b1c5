// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
)

// programCommand makes cmd become the program of that name beside this one: the program reads the flags and prints the help. Its
// first argument is the command as the user knows it.
func programCommand(env Env, name string, cmd *cobra.Command) *cobra.Command {
	cmd.DisableFlagParsing = true
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return become(cmd, env, name, args...)
	}
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		if err := become(cmd, env, name, "--help"); err != nil {
			ui.Warn(env.Stderr, err)
		}
	})
	return cmd
}

// become returns only when the program cannot be executed.
func become(cmd *cobra.Command, env Env, name string, args ...string) error {
	path := filepath.Join(filepath.Dir(env.Self), name)
	if err := env.Exec(path, append([]string{cmd.CommandPath()}, args...), os.Environ()); err != nil {
		return model.Faultf(model.CodeIO, "install "+name+" beside weft", "%s: %s: %w", cmd.CommandPath(), path, err)
	}
	return nil
}
