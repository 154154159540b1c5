// SPDX-License-Identifier: Apache-2.0

// Package install copies weft's programs to a container runtime's plugin directory, writes the agent's conflist of a
// network configuration to its configuration directory, and removes both.
//
// At any moment a name has its old or its new content, never a part: all files are written under a temporary name that
// no runtime reads, and renamed. What a killed run leaves (".weft-new-…") is removed by the next one; a lock on the
// directory makes runs wait for each other. There is no list of what was installed: weft's programs are recognized by
// the Go module in their build information, its links by their target and its configurations by the key "weft". So
// removal works with another version of weft, and never touches a file that another program has put there since.
//
// A foreign program is replaced only on request. It is kept as NAME.weft-original, and restored by Remove.
package install
