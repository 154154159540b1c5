// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
)

// MacvtapDevice is a device that a node's device plugin offers to the kubelet. Its ID has everything that an ADD needs,
// so that neither a restarted agent nor a changed configuration loses what the kubelet has allocated.
type MacvtapDevice struct {
	// Index is the index of the link, N of /dev/tapN. The kubelet passes that path to the container's runtime before the
	// link exists.
	Index int
	// Mode is one of MacvtapModes.
	Mode string
	// Lower is the interface of the node below the macvtap.
	Lower string
}

// MacvtapModes returns the modes of a macvtap. Mode passthru takes the lower interface for itself, which a resource
// with several devices cannot share.
func MacvtapModes() []string { return []string{"bridge", "private", "vepa"} }

// Indexes of macvtaps are above those that weft and the kernel choose.
const (
	firstMacvtap = 0x60000000
	macvtaps     = 0x7fffffff - firstMacvtap
)

// MacvtapIndex returns the index for device i of a node's resource. It is the same after a restart, and another one on
// each node, because the emulated nodes of one host share their /dev.
func MacvtapIndex(node, resource string, i int) int {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s/%s/%d", node, resource, i) // never fails
	return firstMacvtap + int(h.Sum64()%macvtaps)
}

const macvtapPrefix = "tap"

// ID returns the device's ID, for example tap1911260446-bridge-eth1.
func (d MacvtapDevice) ID() string {
	return macvtapPrefix + strconv.Itoa(d.Index) + "-" + d.Mode + "-" + d.Lower
}

// Path returns the file of the device, on the node and in the container.
func (d MacvtapDevice) Path() string { return "/dev/" + macvtapPrefix + strconv.Itoa(d.Index) }

// ParseMacvtapDevice parses an ID; false if it is not of a device of weft's.
func ParseMacvtapDevice(id string) (d MacvtapDevice, ok bool) {
	rest, ok := strings.CutPrefix(id, macvtapPrefix)
	index, rest, _ := strings.Cut(rest, "-")
	mode, lower, named := strings.Cut(rest, "-")
	n, err := strconv.Atoi(index)
	d = MacvtapDevice{Index: n, Mode: mode, Lower: lower}
	ok = ok && named && err == nil && n >= firstMacvtap && n < firstMacvtap+macvtaps &&
		slices.Contains(MacvtapModes(), mode) && checkDeviceName(lower) == nil && lower != ""
	return d, ok
}
