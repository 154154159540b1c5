// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"crypto/sha1" //nolint:gosec // Calico's naming scheme, not a secret
	"encoding/hex"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// CalicoPrefix is the prefix of interface names of routed pods on the node.
const CalicoPrefix = "cali"

// CalicoHostName returns the name of the node's end of a routed pod's interface, as Calico derives it: from the pod's
// namespace and name, else from the container ID. Calico supports one interface per pod; the names of other interfaces
// also depend on the interface's name.
func CalicoHostName(r model.Request) string {
	const defaultIfName, maxLen = "eth0", 11
	pod := r.ContainerID
	if ref, ok := podOf(r); ok {
		pod = ref.Namespace + "." + ref.Name
	} else if r.IfName == defaultIfName {
		return CalicoPrefix + pod[:min(len(pod), maxLen)]
	}
	if r.IfName != defaultIfName {
		pod += "/" + r.IfName
	}
	sum := sha1.Sum([]byte(pod)) //nolint:gosec // as above
	return CalicoPrefix + hex.EncodeToString(sum[:])[:maxLen]
}

// podOf returns the pod of a request, from the datastore or from the runtime's CNI_ARGS.
func podOf(r model.Request) (model.PodRef, bool) {
	if r.Origin != nil && r.Origin.Pod.Name != "" {
		return r.Origin.Pod, true
	}
	namespace, _ := r.Arg("K8S_POD_NAMESPACE")
	name, _ := r.Arg("K8S_POD_NAME")
	uid, _ := r.Arg("K8S_POD_UID")
	return model.PodRef{Namespace: namespace, Name: name, UID: uid}, namespace != "" && name != ""
}

// routedMAC returns the MAC address of the node's end of every routed pod's interface. It is the same on all nodes, so
// a VM's gateway keeps its MAC address in a live migration.
func routedMAC() state.MAC { return state.MAC{0xee, 0xee, 0xee, 0xee, 0xee, 0xee} }
