// SPDX-License-Identifier: Apache-2.0

package conformance

import "slices"

// Item is a requirement of the specification that can be checked.
type Item struct {
	Number int    `json:"item"`
	Side   string `json:"side"` // R runtime, P plugin, D delegating plugin, I IPAM plugin
	Word   string `json:"word"` // must, should, may; prudent where the specification says nothing
	Claim  string `json:"claim"`
}

// Items returns the checklist, in the order of the specification.
func Items() []Item {
	return slices.Concat(configurationItems(), protocolItems(), runtimeItems(), delegationItems(), resultItems())
}

// configurationItems are the items of section 1: network configuration format.
func configurationItems() []Item {
	return []Item{
		{1, "R", "must", "a plugin gets the fields that the runtime does not know, unchanged"},
		{2, "R", "must", "a plugin's type is a file name, without a path"},
		{3, "R", "must", "a network's name begins alphanumeric and holds nothing but A-Z a-z 0-9 _ . -"},
		{4, "R", "must", "runtimeConfig, args and cni.dev/* are the runtime's, not the configuration's"},
		{5, "R", "must", "disableCheck: CHECK is not called"},
		{6, "R", "must", "disableGC: GC is not called"},
		{
			7, "R", "must",
			"loadOnlyInlinedPlugins: plugins of other files are ignored; without it they follow the inlined ones",
		},
		{8, "R", "must", "plugins of other files belong to one network, and each valid one is executed"},
		{9, "R", "must", "of cniVersion and cniVersions the highest known version is used"},
		{10, "R", "must", "unknown fields of a plugin survive the transformation"},
		{11, "P", "must", "a configuration works in every version of one major version"},
		{12, "P", "may", "unknown fields are accepted, or rejected with code 2"},
	}
}

// protocolItems are the items of section 2: execution protocol.
func protocolItems() []Item {
	return []Item{
		{13, "R", "must", "plugins are executed in the runtime's own network namespace"},
		{14, "R", "must", "parameters are environment variables, the configuration is standard input"},
		{15, "P", "must", "a malformed CNI_CONTAINERID or CNI_IFNAME is rejected"},
		{16, "P", "must", "an unusable interface name is an error"},
		{17, "P", "must", "exit 0 for success, otherwise non-zero and an error object"},
		{18, "P", "must", "only the result is on standard output"},
		{19, "P", "must", "ADD creates CNI_IFNAME in CNI_NETNS, or modifies it"},
		{20, "P", "must", "ADD prints a result"},
		{21, "P", "must", "ADD passes prevResult on, or modifies it"},
		{22, "P", "must", "ADD fails if the interface exists"},
		{23, "R", "should", "no second ADD of a container's interface without a DEL in between"},
		{24, "R", "must", "DEL and CHECK get the result of the ADD as prevResult"},
		{25, "P", "must", "DEL works without prevResult"},
		{26, "P", "must", "DEL removes the interface and undoes the ADD"},
		{27, "P", "must", "a repeated DEL succeeds"},
		{28, "P", "should", "DEL succeeds if resources are missing, and releases the others"},
		{29, "P", "should", "DEL without a namespace releases resources outside it"},
		{30, "P", "must", "CHECK verifies prevResult"},
		{31, "P", "must", "CHECK accepts additions of later plugins"},
		{32, "P", "should", "CHECK detects a missing interface, address or route of its own"},
		{33, "P", "should", "CHECK detects other missing resources of its own"},
		{34, "P", "should", "CHECK detects a container that is not reachable"},
		{35, "P", "must", "CHECK succeeds after ADD"},
		{36, "D", "must", "CHECK of delegates is called, their errors are returned"},
		{37, "R", "must", "no CHECK before ADD or after DEL"},
		{38, "R", "must", "no CHECK with disableCheck"},
		{39, "R", "must", "CHECK gets the result of the latest ADD"},
		{40, "R", "must", "CHECK gets the parameters of the ADD"},
		{41, "P", "must", "STATUS succeeds if an ADD can succeed"},
		{42, "P", "must", "ADD and DEL work without a preceding STATUS"},
		{43, "P", "should", "STATUS reports a missing daemon or an exhausted resource, and changes nothing"},
		{44, "D", "must", "STATUS of delegates is called, their errors are returned"},
		{45, "R", "must", "GC gets cni.dev/valid-attachments"},
		{46, "P", "should", "GC removes resources without a valid attachment"},
		{47, "P", "should", "GC continues after an error, then reports it"},
		{48, "D", "must", "GC is forwarded to delegates"},
		{49, "R", "must", "GC is not called instead of DEL"},
		{50, "P", "prudent", "GC changes neither valid attachments nor other networks"},
		{51, "P", "must", "VERSION prints cniVersion and supportedVersions"},
	}
}

// runtimeItems are the items of section 3: execution of network configurations.
func runtimeItems() []Item {
	return []Item{
		{52, "R", "must", "the namespace is created before any plugin is executed"},
		{53, "R", "must", "calls for one container are serialized, calls for different ones are parallel"},
		{54, "R", "must", "GC is not called during ADD and DEL, and vice versa"},
		{55, "P", "must", "calls for different containers can be concurrent"},
		{56, "R", "must", "every ADD is followed by a DEL, also a failed one"},
		{57, "P", "must", "a DEL may follow a DEL, and an ADD after it works"},
		{58, "R", "should", "DEL uses the configuration of the ADD"},
		{59, "R", "must", "the runtime removes the namespace itself"},
		{60, "R", "must", "CNI_PATH is the search path of plugins"},
		{61, "R", "must", "ADD: forward, with the result of the previous plugin, up to the first error"},
		{62, "R", "must", "the final result is kept"},
		{63, "R", "must", "DEL: backward, each plugin gets the final result, up to the first error"},
		{64, "R", "must", "CHECK: forward, each plugin gets the final result, up to the first error"},
		{65, "R", "must", "GC: every plugin, also after errors, which are all returned"},
		{66, "R", "prudent", "STATUS: forward, up to the first error"},
		{67, "R", "must", "cniVersion and name are inserted"},
		{68, "R", "must", "runtimeConfig has the requested values of the plugin's capabilities"},
		{69, "R", "must", "prevResult is inserted, except for the first ADD"},
		{70, "R", "must", "capabilities is not passed on"},
		{71, "R", "must", "no cni.dev/* key of the configuration is passed on"},
	}
}

// delegationItems are the items of section 4: plugin delegation.
func delegationItems() []Item {
	return []Item{
		{72, "D", "must", "delegates are searched for in CNI_PATH"},
		{73, "D", "must", "delegates get the same environment and the full configuration"},
		{74, "D", "must", "a delegate's result becomes part of the result"},
		{75, "D", "must", "CHECK, DEL and GC execute delegates, and return their errors"},
		{76, "D", "should", "a delegate whose ADD failed gets a DEL"},
		{77, "D", "should", "a delegate's standard error is passed on"},
		{78, "I", "must", "an IPAM plugin returns addresses, gateways and routes"},
	}
}

// resultItems are the items of section 5: result types.
func resultItems() []Item {
	return []Item{
		{79, "P", "must", "a result has the format of the configuration's version"},
		{80, "P", "must", "interfaces of the host have no sandbox, those of the container its path"},
		{81, "P", "must", "the result is prevResult with the plugin's own changes"},
		{82, "I", "must", "an IPAM result has no interfaces and no index of one"},
		{83, "P", "must", "the version object is well-formed and consistent"},
		{84, "P", "must", "an error object has cniVersion, code and msg"},
		{85, "P", "must", "codes below 100 are those of the specification"},
		{86, "P", "must", "code 4 names the variables, code 2 the field and its value"},
		{87, "P", "must", "codes 50 and 51 come from STATUS only"},
	}
}
