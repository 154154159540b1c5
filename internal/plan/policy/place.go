// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// The name of weft's table of policy.
const (
	TableFamily = "inet"
	TableName   = "weft-policy"
)

// The families of tables that are elsewhere than at the hooks of IP.
const (
	portFamily = "bridge"
	tapFamily  = "netdev"
)

// Place is where a table is: in the namespace of the pod, or of the node where there is none.
type Place struct {
	Pod model.PodRef
	// Tap is a link of the pod, a macvtap, whose frames are judged below IP.
	Tap string
	// Device is what of the pod's a virtual machine drives by itself: its table is never written, and that there is one
	// says that it must be cut off.
	Device string
	// Ports are the node's bridges: frames are judged where they come in and go out by ports.
	Ports bool
}

// OnNode tells whether the place is in the node's namespace.
func (p Place) OnNode() bool { return p.Pod == model.PodRef{} }

func (p Place) compare(o Place) int {
	ports := 0
	if p.Ports != o.Ports {
		if ports = -1; p.Ports {
			ports = 1
		}
	}
	return cmp.Or(strings.Compare(p.Pod.Namespace, o.Pod.Namespace), strings.Compare(p.Pod.Name, o.Pod.Name),
		strings.Compare(p.Pod.UID, o.Pod.UID), strings.Compare(p.Tap, o.Tap), strings.Compare(p.Device, o.Device), ports)
}

// Table is the name of the place's table.
func (p Place) Table() string {
	if p.Tap != "" {
		return tapName(p.Tap)
	}
	return TableName
}

// single tells whether the place is one link's alone, which needs no map.
func (p Place) single() bool { return p.Tap != "" || p.Device != "" }

func (p Place) node() bool { return p == Place{} }

// Family is that of the tables of the place.
func (p Place) Family() string {
	switch {
	case p.Ports:
		return portFamily
	case p.Tap != "":
		return tapFamily
	}
	return TableFamily
}

// tapName is the name of the table of a tap: the kernel takes letters and digits.
func tapName(link string) string {
	if strings.ContainsFunc(link, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r)
	}) {
		link = short(link)
	}
	return TableName + "-" + link
}
