// SPDX-License-Identifier: Apache-2.0

// Command weft-lab runs clusters, pods and virtual machines on this host. weft executes it.
package main

import (
	"os"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/lab/command"
)

// version is set by the linker.
var version = "dev"

func main() { os.Exit(ui.Process(version, command.Run)) }
