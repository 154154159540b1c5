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

// podIndex has the pods that there are; none at all means that pods are not known here.
type podIndex map[string]podInfo // by "namespace/name"

// podInfo is what a pod says of itself.
type podInfo struct {
	node string
	// over: its containers have ended for good, and its network is gone or about to be.
	over bool
	// silent: it runs with an address of the cluster's network, and does not say which.
	silent bool
	// told: its annotation says which addresses it has.
	told  bool
	addrs []netip.Addr
	// ips are those that its status says: of the cluster's network.
	ips []netip.Addr
}

// note takes a pod in. One that cannot be read has everything and says nothing.
func (p podIndex) note(o store.Object) {
	name := o.Key.Namespace + "/" + o.Key.Name
	pod, err := o.Pod()
	if err != nil {
		p[name] = podInfo{}
		return
	}
	one := podInfo{node: pod.Node, over: pod.Phase == "Succeeded" || pod.Phase == "Failed"}
	if !pod.HostNetwork {
		one.ips, one.addrs = pod.IPs, slices.Clone(pod.IPs)
	}
	var networks []struct{ IPs []string }
	if text := pod.Annotations[grants.NetworkStatus]; text != "" && json.Unmarshal([]byte(text), &networks) == nil {
		one.told = true
		for _, n := range networks {
			for _, ip := range n.IPs {
				if a, err := netip.ParseAddr(ip); err == nil && !slices.Contains(one.addrs, a.Unmap()) {
					one.addrs = append(one.addrs, a.Unmap())
				}
			}
		}
	}
	one.silent = one.node != "" && !one.over && !pod.HostNetwork && len(one.addrs) == 0
	p[name] = one
}

// gone reports whether there is no pod of that name, as far as pods are known. Other words than a name are nobody's.
func (p podIndex) gone(ref string) bool {
	_, there := p[ref]
	return len(p) > 0 && !there && strings.Count(ref, "/") == 1 && !strings.Contains(ref, " ")
}

// names are those of all pods, in order.
func (p podIndex) names() []string { return slices.Sorted(maps.Keys(p)) }

// on are the pods that are on a node and not over.
func (p podIndex) on(node string) (n int) {
	for _, one := range p {
		if one.node == node && !one.over {
			n++
		}
	}
	return n
}

// having are the pods that say that they have an address.
func (p podIndex) having(a netip.Addr) []string {
	var out []string
	for name, one := range p {
		if !one.over && slices.Contains(one.addrs, a) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// denies reports whether a pod says which addresses it has, and not this one.
func (p podIndex) denies(ref string, a netip.Addr) bool {
	one := p[ref]
	return one.told && !slices.Contains(one.addrs, a)
}

// moved reports whether the pod of that name has addresses in the cluster's network, and not this one: what had it is
// gone, and another pod has its name.
func (p podIndex) moved(ref string, a netip.Addr) bool {
	one := p[ref]
	return len(one.ips) > 0 && !slices.Contains(one.ips, a)
}

// silent reports whether there is a pod that has an address and does not say which.
func (p podIndex) silent() bool {
	for _, one := range p {
		if one.silent {
			return true
		}
	}
	return false
}
