// SPDX-License-Identifier: Apache-2.0

package wire

// PluginVar is the variable of a request that names the plugin in whose name weft-cni was executed: one that the agent has built
// in. It is not there where the call is for the agent's own configuration, or Multus'.
const PluginVar = "WEFT_PLUGIN"

// AgentPlugin is the plugin that a program's first argument names, where that is one whose work an agent does; else empty.
func AgentPlugin(argv0 []byte) string {
	start := 0
	for i, c := range argv0 {
		if c == '/' {
			start = i + 1
		}
	}
	switch string(argv0[start:]) {
	case "calico":
		return "calico"
	case "calico-ipam":
		return "calico-ipam"
	case "whereabouts":
		return "whereabouts"
	case "weft":
		return "weft"
	}
	return ""
}

// AgentPlugins are all of them.
func AgentPlugins() []string { return []string{"calico", "calico-ipam", "weft", "whereabouts"} }
