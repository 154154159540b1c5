// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// endpoint is an interface of a pod on this node.
type endpoint struct {
	model.WorkloadEndpoint
	table  *table
	pod    *pod // whose uid is the endpoint's; nil: it is not known
	chains [2]*chainSpec
}

// link is the interface's name in the table's namespace.
func (e *endpoint) link() string {
	switch e.Point() {
	case model.PointPod, model.PointTap, model.PointDevice:
		return e.IfName
	}
	return e.HostLink
}

// place is where the endpoint is judged.
func (e *endpoint) place() Place {
	var place Place
	switch e.Point() {
	case model.PointPort:
		place.Ports = true
	case model.PointPod:
		place.Pod = e.Pod
	case model.PointTap:
		place.Pod, place.Tap = e.Pod, e.IfName
	case model.PointDevice:
		place.Pod, place.Device = e.Pod, e.Device
	}
	return place
}

func (e *endpoint) subject() subject { return subject{e.Pod.Namespace, e.Network, e.pod} }

// before decides between endpoints that claim one interface.
func (e *endpoint) before(o *endpoint) bool {
	if (e.pod == nil) != (o.pod == nil) {
		return e.pod != nil
	}
	return cmp.Or(strings.Compare(e.Key().String(), o.Key().String()), strings.Compare(e.Pod.UID, o.Pod.UID)) < 0
}
