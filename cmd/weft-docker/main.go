// SPDX-License-Identifier: Apache-2.0

// Command weft-docker is a network driver and IPAM driver of Docker. weft docker executes it.
package main

import (
	"os"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/docker/command"
)

// version is set by the linker.
var version = "dev"

func main() { os.Exit(ui.Process(version, command.Run)) }
