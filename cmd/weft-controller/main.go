// SPDX-License-Identifier: Apache-2.0

// Command weft-controller is what is done once in a cluster of Kubernetes. weft controller executes it.
package main

import (
	"os"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/controller/command"
)

// version is set by the linker.
var version = "dev"

func main() { os.Exit(ui.Process(version, command.Run)) }
