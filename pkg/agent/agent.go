// SPDX-License-Identifier: Apache-2.0

// Package agent is weft-agent as a function, for programs that are weft-agent with mesh back ends of their own (package
// backend beside this one).
package agent

import (
	"context"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/node/agent/command"
	"github.com/weft-net/weft/pkg/backend"
)

// Run runs the command line of weft-agent, as this process was called, to its end, and returns the exit code: for main,
// which exits with it. It ends with SIGTERM and the interrupt. A program that is called flanneld takes flannel's flags.
// version is what --version says; further are back ends beside weft's own, by whose names network.encapsulation and
// --encapsulation choose them.
func Run(version string, further ...backend.Backend) int {
	return ui.Process(version, func(ctx context.Context, name string, env ui.Env) int {
		if name == "flanneld" { // in the place of flannel's program
			name, env.Args = "weft-agent", append([]string{name}, env.Args...)
		}
		return command.Run(ctx, name, env, further...)
	})
}
