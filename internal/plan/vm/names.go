// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// names are the links of one network, with KubeVirt's names, which other tools know.
type names struct {
	// pod is the pod's link: eth0, or "pod" and eleven digits of a hash of the network's name.
	pod string
	// renamed is the pod link's name when it is a port of the bridge.
	renamed, bridge, tap string
}

const (
	primaryLink = "eth0"
	hashed      = "pod"
	// maxName is the longest name of a link (IFNAMSIZ, less the final zero).
	maxName = 15
)

func (in Input) names(nic model.VMInterface) names {
	n := names{pod: in.PodLink(nic), tap: "tap0"}
	short := strings.TrimPrefix(n.pod, hashed)
	n.bridge, n.renamed = "k6t-"+short, short+"-nic"
	if !nic.Network.Primary && len(n.pod) > len(hashed) {
		n.tap = "tap" + n.pod[len(hashed):]
	}
	return n
}

// TapLink returns the name of an interface's tap.
func (in Input) TapLink(nic model.VMInterface) string { return in.names(nic).tap }

// PodLink returns the name of the pod's link of an interface's network.
func (in Input) PodLink(nic model.VMInterface) string {
	switch {
	case nic.PodLink != "":
		return nic.PodLink
	case nic.Network.Primary:
		return primaryLink
	case in.OrdinalNames:
		return in.ordinal(nic)
	}
	sum := sha256.Sum256([]byte(nic.Network.Name))
	return hashed + hex.EncodeToString(sum[:])[:11]
}

// ordinal numbers the secondary networks in the order of the manifest.
func (in Input) ordinal(nic model.VMInterface) string {
	n := 1
	for _, other := range in.VM.Interfaces {
		if !other.Network.Primary && other.Network.Index < nic.Network.Index {
			n++
		}
	}
	return fmt.Sprintf("net%d", n)
}

// mark returns the ifalias of the links that are created for a network.
func (p *planner) mark() string {
	m := "weft:" + p.out.Fragment.Owner
	const most = 255 // IFALIASZ, less the final zero
	return m[:min(len(m), most)]
}

func (in Input) interfacePath(nic model.VMInterface) string {
	return fmt.Sprintf("%s.domain.devices.interfaces[%d]", in.VM.Path, nic.Index)
}

func (in Input) networkPath(nic model.VMInterface) string {
	return fmt.Sprintf("%s.networks[%d]", in.VM.Path, nic.Network.Index)
}
