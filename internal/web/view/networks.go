// SPDX-License-Identifier: Apache-2.0

package view

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// networkStatus is the annotation of a pod with its interfaces.
const networkStatus = "k8s.v1.cni.cncf.io/network-status"

// Endpoints returns the interfaces of pods on further networks: those that agents have published, which they do while there
// are policies, and of other pods those of their annotation network-status.
func Endpoints(pods []model.Pod, published []model.WorkloadEndpoint) []model.WorkloadEndpoint {
	out := slices.Clone(published)
	has := map[[2]string]bool{}
	for _, e := range published {
		if e.Network != "" {
			has[[2]string{e.Pod.Namespace, e.Pod.Name}] = true
		}
	}
	for _, p := range pods {
		if has[[2]string{p.Namespace, p.Name}] {
			continue
		}
		var all []struct {
			Name, Interface string
			IPs             []string
			Default         bool
		}
		if text := p.Annotations[networkStatus]; text == "" || json.Unmarshal([]byte(text), &all) != nil {
			continue
		}
		for _, n := range all {
			if n.Default || !strings.Contains(n.Name, "/") { // the cluster's network is called as its configuration is
				continue
			}
			e := model.WorkloadEndpoint{
				Pod: model.PodRef{Namespace: p.Namespace, Name: p.Name, UID: p.UID}, Node: p.Node, Network: n.Name, IfName: n.Interface,
			}
			for _, text := range n.IPs {
				if a, err := netip.ParseAddr(text); err == nil {
					e.Addrs = append(e.Addrs, a.Unmap())
				}
			}
			out = append(out, e)
		}
	}
	return out
}

// onNetworks reports whether a policy of further networks concerns a pod: it has an interface on one of them.
func onNetworks(networks []string, pod model.Pod, endpoints map[[2]string][]string) bool {
	return slices.ContainsFunc(endpoints[[2]string{pod.Namespace, pod.Name}], func(n string) bool { return slices.Contains(networks, n) })
}
