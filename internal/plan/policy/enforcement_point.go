// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// The name of weft's policy table.
const (
	TableFamily = "inet"
	TableName   = "weft-policy"
)

// The families of tables that are not at the IP hooks.
const (
	portFamily = "bridge"
	tapFamily  = "netdev"
)

// EnforcementPoint is where a table enforces: the namespace of the pod, or the node's if there is none.
type EnforcementPoint struct {
	Pod model.PodRef
	// Tap is a link of the pod, a macvtap, whose frames are filtered below IP.
	Tap string
	// Device is a device that is passed through to a VM: its table is never written, and its existence means that the
	// device must be quarantined.
	Device string
	// Ports are the node's bridges: frames are filtered where they enter and leave at ports.
	Ports bool
}

// OnNode reports whether the place is in the node's namespace.
func (p EnforcementPoint) OnNode() bool { return p.Pod == model.PodRef{} }

func (p EnforcementPoint) compare(o EnforcementPoint) int {
	ports := 0
	if p.Ports != o.Ports {
		if ports = -1; p.Ports {
			ports = 1
		}
	}
	return cmp.Or(strings.Compare(p.Pod.Namespace, o.Pod.Namespace), strings.Compare(p.Pod.Name, o.Pod.Name),
		strings.Compare(p.Pod.UID, o.Pod.UID), strings.Compare(p.Tap, o.Tap), strings.Compare(p.Device, o.Device), ports)
}

// Table returns the name of the place's table.
func (p EnforcementPoint) Table() string {
	if p.Tap != "" {
		return tapName(p.Tap)
	}
	return TableName
}

// single reports whether the place is one link only, which needs no map.
func (p EnforcementPoint) single() bool { return p.Tap != "" || p.Device != "" }

func (p EnforcementPoint) node() bool { return p == EnforcementPoint{} }

// Family returns the nft family of the place's tables.
func (p EnforcementPoint) Family() string {
	switch {
	case p.Ports:
		return portFamily
	case p.Tap != "":
		return tapFamily
	}
	return TableFamily
}

// tapName returns the name of a tap's table: only letters and digits are valid.
func tapName(link string) string {
	if strings.ContainsFunc(link, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r)
	}) {
		link = shortHash(link)
	}
	return TableName + "-" + link
}
