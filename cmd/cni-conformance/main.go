// SPDX-License-Identifier: Apache-2.0

// Command cni-conformance tests CNI plugins of any vendor against the specification. weft conformance executes
// it.
package main

import (
	"os"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/conformance/command"
)

// version is set by the linker.
var version = "dev"

func main() { os.Exit(ui.Process(version, command.Run)) }
