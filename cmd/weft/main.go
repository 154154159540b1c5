// SPDX-License-Identifier: Apache-2.0

// Command weft is the operator's command line. It executes other programs of its directory for their commands: weft agent
// is the program weft-agent.
package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/weft-net/weft/internal/cli"
	"github.com/weft-net/weft/internal/cli/ui"
)

// version is set by the linker.
var version = "dev"

func main() {
	env := ui.ProcessEnv(version)
	switch filepath.Base(os.Args[0]) {
	case "flanneld": // a replacement of flannel's program
		env.Args = append([]string{"flanneld"}, env.Args...)
	case "kubectl-weft": // kubectl weft
		env.Kubectl = true
	}
	// Before signals are caught: a signal that arrives between would be lost.
	if code, external := cli.ExecExternal(env); external {
		os.Exit(code)
	}
	os.Exit(ui.Process(version, func(ctx context.Context, _ string, _ ui.Env) int { return cli.Run(ctx, env) }))
}
