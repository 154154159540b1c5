// SPDX-License-Identifier: Apache-2.0

// Package agent is weft-agent as a function, for programs that add backends to it (package backend).
package agent

import (
	"context"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/node/agent/command"
	"github.com/weft-net/weft/pkg/backend"
)

// Run runs the command line of weft-agent with the arguments of this process, until SIGTERM or an interrupt, and returns
// the exit code. A program with the name flanneld takes flannel's flags. version is what --version prints; further are
// backends in addition to weft's own, which network.encapsulation and --encapsulation select by their names.
func Run(version string, further ...backend.Backend) int {
	return ui.Process(version, func(ctx context.Context, name string, env ui.Env) int {
		if name == "flanneld" { // instead of flannel's program
			name, env.Args = "weft-agent", append([]string{name}, env.Args...)
		}
		return command.Run(ctx, name, env, further...)
	})
}
