// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Base is the design to which the others are compared.
const Base = "bridge"

// Other designs that reports refer to.
const (
	plainPod   = "pod"
	masquerade = "masquerade"
)

// design is a binding, or a variant of one.
type design struct {
	name    string
	binding model.VMBinding // empty for the plain pod
	// softChecksums is KubeVirt's older form: the kernel computes checksums of packets that the pod's bridge sends.
	softChecksums bool
	// guarded enables weft's source guard, which KubeVirt does not have.
	guarded bool
	// join is how the direct binding joins tap and link.
	join state.JoinMethod
	// hostTap has the tap on the node and no link in the pod.
	hostTap bool
}

func designs() []design {
	return []design{
		{name: plainPod},
		{name: "direct-host", binding: model.VMDirect, hostTap: true, guarded: true},
		{name: "direct-peer", binding: model.VMDirect, join: state.JoinPeer, guarded: true},
		{name: "direct-fwd", binding: model.VMDirect, join: state.JoinForward, guarded: true},
		{name: "direct-redirect", binding: model.VMDirect, join: state.JoinRedirect, guarded: true},
		{name: "direct-mirred", binding: model.VMDirect, join: state.JoinMirred, guarded: true},
		{name: "macvtap", binding: model.VMMacvtap},
		{name: Base, binding: model.VMBridge},
		{name: "bridge-guarded", binding: model.VMBridge, guarded: true},
		{name: "bridge-older", binding: model.VMBridge, softChecksums: true},
		{name: masquerade, binding: model.VMMasquerade},
		{name: "masquerade-guarded", binding: model.VMMasquerade, guarded: true},
		{name: "masquerade-older", binding: model.VMMasquerade, softChecksums: true},
	}
}

// Designs returns the names of all designs.
func Designs() []string {
	var out []string
	for _, d := range designs() {
		out = append(out, d.name)
	}
	return out
}

func findDesign(name string) (design, bool) {
	all := designs()
	i := slices.IndexFunc(all, func(d design) bool { return d.name == name })
	if i < 0 {
		return design{}, false
	}
	return all[i], true
}
