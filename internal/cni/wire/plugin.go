// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"slices"
	"strings"
)

// PluginVar is the variable of a request that names the plugin in whose name weft-cni was executed: one that the agent
// has built in. It is not there where the call is for the agent's own configuration, or Multus'.
const PluginVar = "WEFT_PLUGIN"

// AgentPlugin is the plugin that a program's first argument names, where that is one whose work an agent does; else
// empty.
func AgentPlugin(argv0 string) string {
	name := argv0[strings.LastIndexByte(argv0, '/')+1:]
	if slices.Contains(AgentPlugins(), name) {
		return name
	}
	return ""
}

// AgentPlugins are all of them.
func AgentPlugins() []string { return []string{"calico", "calico-ipam", "weft", "whereabouts"} }
