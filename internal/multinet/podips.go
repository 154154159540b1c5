// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"net/netip"
	"strings"
)

// Annotations that Calico writes to its pods.
const (
	PodIPKey  = "cni.projectcalico.org/podIP"
	PodIPsKey = "cni.projectcalico.org/podIPs"
)

// PodIPs are the annotations with which Calico publishes a pod's addresses on its first network: the first one, and all of
// them, as prefixes of their whole length.
func PodIPs(all []Got) map[string]string {
	var texts []string
	for _, g := range all {
		if !g.Primary {
			continue
		}
		for _, ip := range g.Result.IPs {
			a := ip.Address.Addr()
			texts = append(texts, netip.PrefixFrom(a, a.BitLen()).String())
		}
	}
	if texts == nil {
		return map[string]string{}
	}
	return map[string]string{PodIPKey: texts[0], PodIPsKey: strings.Join(texts, ",")}
}
