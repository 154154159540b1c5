// SPDX-License-Identifier: Apache-2.0

// Command weft-agent is what runs with root's rights on a node: the agent, its stand-in for flannel's daemon, and their
// helpers. As flanneld it takes flannel's flags.
package main

import (
	"os"

	"github.com/weft-net/weft/pkg/agent"
)

// version is set by the linker.
var version = "dev"

func main() { os.Exit(agent.Run(version)) }
