// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/grants"
)

// podIndex has all pods; empty: pods are not known.
type podIndex map[string]podInfo // by "namespace/name"

// podInfo is a pod's node and addresses.
type podInfo struct {
	node string
	// finished: its containers have finished, and its network is gone or about to be.
	finished bool
	// unreported: it runs without a reported address of the cluster's network.
	unreported bool
	// vm: a VM of KubeVirt runs in it.
	vm bool
	// annotated: its network-status annotation has its addresses.
	annotated bool
	addrs     []netip.Addr
	// ips are those of its status: of the cluster's network.
	ips []netip.Addr
}

// domainAnnotation is the annotation by which KubeVirt marks the pods of VMs.
const domainAnnotation = "kubevirt.io/domain"

// note adds a pod. An invalid one counts as present, without addresses.
func (p podIndex) note(o store.Object) {
	name := o.Key.Namespace + "/" + o.Key.Name
	pod, err := o.Pod()
	if err != nil {
		p[name] = podInfo{}
		return
	}
	one := podInfo{node: pod.Node, finished: pod.Phase == "Succeeded" || pod.Phase == "Failed"}
	one.vm = pod.Annotations[domainAnnotation] != ""
	if !pod.HostNetwork {
		one.ips, one.addrs = pod.IPs, slices.Clone(pod.IPs)
	}
	var networks []struct{ IPs []string }
	if text := pod.Annotations[grants.NetworkStatus]; text != "" && json.Unmarshal([]byte(text), &networks) == nil {
		one.annotated = true
		for _, n := range networks {
			for _, ip := range n.IPs {
				if a, err := netip.ParseAddr(ip); err == nil && !slices.Contains(one.addrs, a.Unmap()) {
					one.addrs = append(one.addrs, a.Unmap())
				}
			}
		}
	}
	one.unreported = one.node != "" && !one.finished && !pod.HostNetwork && len(one.addrs) == 0
	p[name] = one
}

// gone reports whether there is no pod of that name, as far as pods are known. Text that is not a name is not a deleted
// pod.
func (p podIndex) gone(ref string) bool {
	_, there := p[ref]
	return len(p) > 0 && !there && strings.Count(ref, "/") == 1 && !strings.Contains(ref, " ")
}

// names returns the names of all pods, sorted.
func (p podIndex) names() []string { return slices.Sorted(maps.Keys(p)) }

// on counts the pods on a node that have not finished.
func (p podIndex) on(node string) (n int) {
	for _, one := range p {
		if one.node == node && !one.finished {
			n++
		}
	}
	return n
}

// having returns the pods that report an address.
func (p podIndex) having(a netip.Addr) []string {
	var out []string
	for name, one := range p {
		if !one.finished && slices.Contains(one.addrs, a) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// denies reports whether a pod reports other addresses in its annotation, and not this one.
func (p podIndex) denies(ref string, a netip.Addr) bool {
	one := p[ref]
	return one.annotated && !slices.Contains(one.addrs, a)
}

// moved reports whether the pod of that name has other addresses in the cluster's network: the pod that had this one
// was replaced.
func (p podIndex) moved(ref string, a netip.Addr) bool {
	one := p[ref]
	return len(one.ips) > 0 && !slices.Contains(one.ips, a)
}

// anyUnreported reports whether a pod has an address and does not report it.
func (p podIndex) anyUnreported() bool {
	for _, one := range p {
		if one.unreported {
			return true
		}
	}
	return false
}
