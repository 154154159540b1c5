// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Base is the design that the others are compared with.
const Base = "bridge"

// The other designs that reports name.
const (
	limit      = "pod"
	masquerade = "masquerade"
)

// design is one way between machine and network.
type design struct {
	name    string
	binding model.VMBinding // empty: the plain pod
	// soft is KubeVirt's older form: the kernel computes the checksums of what the pod's bridge sends.
	soft bool
	// guarded has weft see to it that a guest speaks for itself alone, which KubeVirt does not.
	guarded bool
	// how the direct binding joins tap and link.
	how state.JoinHow
	// host has no link in the pod: the tap is the node's.
	host bool
}

func designs() []design {
	return []design{
		{name: limit},
		{name: "direct-host", binding: model.VMDirect, host: true, guarded: true},
		{name: "direct-peer", binding: model.VMDirect, how: state.JoinPeer, guarded: true},
		{name: "direct-fwd", binding: model.VMDirect, how: state.JoinForward, guarded: true},
		{name: "direct-redirect", binding: model.VMDirect, how: state.JoinRedirect, guarded: true},
		{name: "direct-mirred", binding: model.VMDirect, how: state.JoinMirred, guarded: true},
		{name: "macvtap", binding: model.VMMacvtap},
		{name: Base, binding: model.VMBridge},
		{name: "bridge-guarded", binding: model.VMBridge, guarded: true},
		{name: "bridge-older", binding: model.VMBridge, soft: true},
		{name: masquerade, binding: model.VMMasquerade},
		{name: "masquerade-guarded", binding: model.VMMasquerade, guarded: true},
		{name: "masquerade-older", binding: model.VMMasquerade, soft: true},
	}
}

// Designs are the names of all designs.
func Designs() []string {
	var out []string
	for _, d := range designs() {
		out = append(out, d.name)
	}
	return out
}

func find(name string) (design, bool) {
	all := designs()
	i := slices.IndexFunc(all, func(d design) bool { return d.name == name })
	if i < 0 {
		return design{}, false
	}
	return all[i], true
}
