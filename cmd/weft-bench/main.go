// SPDX-License-Identifier: Apache-2.0

// Command weft-bench compares weft with its peers. weft bench executes it.
package main

import (
	"os"

	"github.com/weft-net/weft/internal/bench/command"
	"github.com/weft-net/weft/internal/cli/ui"
)

// version is set by the linker.
var version = "dev"

func main() { os.Exit(ui.Process(version, command.Run)) }
