// SPDX-License-Identifier: Apache-2.0

package model

import "testing"

// Policies are enforced where the packets of an endpoint can be filtered.
func TestPoint(t *testing.T) {
	for name, tt := range map[string]struct {
		in           WorkloadEndpoint
		want         PolicyPoint
		link, device string
	}{
		"routed": {WorkloadEndpoint{HostLink: "cali1", HostEnd: HostEndRouted}, PointHost, "cali1", ""},
		"routed, a VM's": {
			WorkloadEndpoint{HostLink: "tap1", HostEnd: HostEndRouted, VM: true}, PointHost, "tap1", "",
		},
		"routed, with a device": {
			WorkloadEndpoint{HostLink: "cali1", HostEnd: HostEndRouted, Device: "0000:03:02.1"}, PointHost, "cali1", "",
		},
		"a port":           {WorkloadEndpoint{HostLink: "veth1", HostEnd: HostEndPort}, PointPort, "veth1", ""},
		"another plugin's": {WorkloadEndpoint{HostLink: "end", HostEnd: HostEndForeign}, PointPod, "", ""},
		"another plugin's, a VM's": {
			WorkloadEndpoint{HostLink: "end", HostEnd: HostEndForeign, VM: true}, PointHost, "end", "",
		},
		"without an end":         {WorkloadEndpoint{}, PointPod, "", ""},
		"without an end, a VM's": {WorkloadEndpoint{VM: true}, PointPod, "", ""},
		"a macvtap":              {WorkloadEndpoint{Tap: true, VM: true}, PointTap, "", ""},
		"a device":               {WorkloadEndpoint{Device: "0000:03:02.1", VM: true}, PointDevice, "", "0000:03:02.1"},
		"a device and a foreign end": {
			WorkloadEndpoint{HostLink: "end", HostEnd: HostEndForeign, Device: "0000:03:02.1", VM: true},
			PointDevice, "",
			"0000:03:02.1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tt.in.Point(); got != tt.want || tt.in.PolicyLink() != tt.link || tt.in.PolicyDevice() != tt.device {
				t.Errorf("Point() = %q at link %q, device %q", got, tt.in.PolicyLink(), tt.in.PolicyDevice())
			}
		})
	}
}

// TestEqualInPolicy: what policies do not see of an endpoint makes no difference to them.
func TestEqualInPolicy(t *testing.T) {
	e := WorkloadEndpoint{Pod: PodRef{Namespace: "a", Name: "b"}, IfName: "eth0", HostLink: "end", HostEnd: HostEndForeign}
	same, other := e, e
	same.Standby, same.NetnsID, same.HostLink = true, 7, "renamed" // enforced in the pod
	other.VM = true                                                // enforced at the end
	if !e.EqualInPolicy(same) || e.Equal(same) {
		t.Error("an endpoint that policies see as before is another one to them, or the same in all")
	}
	if e.EqualInPolicy(other) {
		t.Error("an endpoint that is enforced elsewhere is the same to policies")
	}
}
