// SPDX-License-Identifier: Apache-2.0

// Package install puts weft's programs into a container runtime's plugin directory and the agent's form of a network
// configuration into its configuration directory, and takes both back.
//
// Whatever happens in between, a name is what it was or what it shall be, whole: everything is written beside its place
// under a name that no runtime reads, and renamed over. What a killed run leaves (".weft-new-…") the next one clears
// away; a lock on the directory makes runs wait for each other. There is no list of what was installed: weft knows its
// programs by the module that is written into them, its links by their target and its configurations by the key "weft".
// So taking back works with another version of weft, and never touches what somebody else has put over it since.
//
// A foreign program is replaced only when that was asked for. It stays beside its place as NAME.weft-original, and has
// its name again after Remove.
package install
