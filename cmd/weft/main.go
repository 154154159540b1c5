// SPDX-License-Identifier: Apache-2.0

// Command weft is the operator's command line. What other programs are it becomes: weft agent is the program weft-agent
// beside it.
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
	if filepath.Base(os.Args[0]) == "flanneld" { // in the place of flannel's program
		env.Args = append([]string{"flanneld"}, env.Args...)
	}
	if code, handed := cli.HandOn(env); handed { // before signals are caught: one that came between would be lost
		os.Exit(code)
	}
	os.Exit(ui.Process(version, func(ctx context.Context, _ string, _ ui.Env) int { return cli.Run(ctx, env) }))
}
