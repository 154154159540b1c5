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
	pod    *pod // with the endpoint's UID; nil: not known
	chains [2]*chainSpec
}

// link returns the interface's name in the table's namespace.
func (e *endpoint) link() string {
	switch e.Point() {
	case model.PointPod, model.PointTap, model.PointDevice:
		return e.IfName
	}
	return e.HostLink
}

// place returns where policy is enforced on the endpoint.
func (e *endpoint) place() EnforcementPoint {
	var place EnforcementPoint
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

// before reports whether the endpoint takes precedence over another that claims the same interface.
func (e *endpoint) before(o *endpoint) bool {
	if (e.pod == nil) != (o.pod == nil) {
		return e.pod != nil
	}
	return cmp.Or(strings.Compare(e.Key().String(), o.Key().String()), strings.Compare(e.Pod.UID, o.Pod.UID)) < 0
}
