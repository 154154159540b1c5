// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"crypto/sha1" //nolint:gosec // the name that Calico gives, not a secret
	"encoding/hex"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// CalicoPrefix is what the names of routed pods' ends on the node begin with.
const CalicoPrefix = "cali"

// CalicoHostName is the name of the node's end of a routed pod's interface, as Calico has it: of the pod's name in
// Kubernetes, else of the container's id. Calico knows one interface of a pod; the names of others have theirs in them.
func CalicoHostName(r model.Request) string {
	const usual, most = "eth0", 11
	pod := r.ContainerID
	if ref, ok := podOf(r); ok {
		pod = ref.Namespace + "." + ref.Name
	} else if r.IfName == usual {
		return CalicoPrefix + pod[:min(len(pod), most)]
	}
	if r.IfName != usual {
		pod += "/" + r.IfName
	}
	sum := sha1.Sum([]byte(pod)) //nolint:gosec // as above
	return CalicoPrefix + hex.EncodeToString(sum[:])[:most]
}

// podOf is the pod that a request is about, by what is known of it or what the runtime says.
func podOf(r model.Request) (model.PodRef, bool) {
	if r.Origin != nil && r.Origin.Pod.Name != "" {
		return r.Origin.Pod, true
	}
	namespace, _ := r.Arg("K8S_POD_NAMESPACE")
	name, _ := r.Arg("K8S_POD_NAME")
	uid, _ := r.Arg("K8S_POD_UID")
	return model.PodRef{Namespace: namespace, Name: name, UID: uid}, namespace != "" && name != ""
}

// routedMAC is the hardware address of the node's end of every routed pod's interface, the same on all nodes: a pod
// that moves to another one finds its gateway where it was.
func routedMAC() state.MAC { return state.MAC{0xee, 0xee, 0xee, 0xee, 0xee, 0xee} }
