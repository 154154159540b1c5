// SPDX-License-Identifier: Apache-2.0

// Command weft-cluster installs weft in a Kubernetes cluster. weft cluster executes it.
package main

import (
	"os"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/release/command"
)

// version is set by the linker.
var version = "dev"

func main() { os.Exit(ui.Process(version, command.Run)) }
