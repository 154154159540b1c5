// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"log/slog"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weft-net/weft/internal/model"
)

// LogLevelFlag adds --log-level.
func LogLevelFlag(f *pflag.FlagSet, level *slog.Level) {
	f.TextVar(level, "log-level", slog.LevelInfo, "lowest `LEVEL` that is logged: debug, info, warn or error")
	f.Lookup("log-level").DefValue = "info"
}

// OutputFlag adds -o with its allowed values. The first is the default.
func OutputFlag(cmd *cobra.Command, values ...string) *string {
	output := cmd.Flags().StringP("output", "o", values[0], "output `FORMAT`: "+model.OneOf(values))
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if slices.Contains(values, *output) {
			return nil
		}
		return BadOutput(*output, values...)
	}
	return output
}

// TextOrJSON rejects other output formats.
func TextOrJSON(o string) error {
	if o != "text" && o != "json" {
		return BadOutput(o, "text", "json")
	}
	return nil
}

// NoArgs rejects arguments.
func NoArgs(cmd *cobra.Command, args []string) error { return cobra.MaximumNArgs(0)(cmd, args) }
