// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"slices"
	"strings"
)

// PluginVar is the variable of a request with the name of the built-in plugin as which weft-cni was executed. It is
// missing if the call is for the agent's own configuration, or Multus'.
const PluginVar = "WEFT_PLUGIN"

// AgentPlugin returns the name of the plugin that argv[0] names, if only an agent runs it; else empty.
func AgentPlugin(argv0 string) string {
	name := argv0[strings.LastIndexByte(argv0, '/')+1:]
	if slices.Contains(AgentPlugins(), name) {
		return name
	}
	return ""
}

// AgentPlugins returns the plugins that only an agent runs.
func AgentPlugins() []string { return []string{"calico", "calico-ipam", "weft", "whereabouts"} }
