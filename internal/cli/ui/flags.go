// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"log/slog"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// LogLevelFlag adds --log-level.
func LogLevelFlag(f *pflag.FlagSet, level *slog.Level) {
	f.TextVar(level, "log-level", slog.LevelInfo, "lowest `LEVEL` that is logged: debug, info, warn or error")
	f.Lookup("log-level").DefValue = "info"
}

// NoArgs rejects arguments.
func NoArgs(cmd *cobra.Command, args []string) error { return cobra.MaximumNArgs(0)(cmd, args) }
