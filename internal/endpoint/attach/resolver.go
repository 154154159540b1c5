// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// resolver completes configurations by what depends on the node and the pod: the node's settings in the cluster, the
// pod's annotations, and the delegates of the flannel plugin.
type resolver struct {
	catalog *catalog
	node    func() Node // nil: the node's settings are unknown
	records *notifyingStore
}

// Node holds the cluster's settings for this node, for what configurations leave open.
type Node struct {
	// PodCIDRs are the prefixes of the node's pods.
	PodCIDRs []netip.Prefix
	// MTU is the MTU of the node's pods; 0 is the kernel's default.
	MTU int
}

// nodeFacts returns the current settings of this node.
func (r *resolver) nodeFacts() Node {
	if r.node == nil {
		return Node{}
	}
	return r.node()
}

// podMTU returns the node's MTU for plugins that use it, else 0.
func (r *resolver) podMTU(conf model.PluginConf) int {
	if conf.Type != plugin.CalicoType {
		return 0
	}
	return r.nodeFacts().MTU
}

// wantsPrefixes reports whether a plugin's configuration has the placeholder for the node's prefixes.
func (r *resolver) wantsPrefixes(conf model.PluginConf) bool {
	return conf.Type == plugin.CalicoType && r.catalog.planners[conf.Type] != nil && plugin.Calico{}.WantsPrefixes(conf)
}

// changes reports whether a plugin's configuration depends on the node or the pod.
func (r *resolver) changes(conf model.PluginConf) bool {
	return conf.Type == plugin.CalicoType && r.catalog.planners[conf.Type] != nil
}

// withPrefixes replaces placeholders by prefixes.
func (r *resolver) withPrefixes(job Job, prefixes func() []netip.Prefix) (Job, error) {
	if !slices.ContainsFunc(job.Network.Plugins, r.wantsPrefixes) {
		return job, nil
	}
	job.Network.Plugins = slices.Clone(job.Network.Plugins)
	for i, conf := range job.Network.Plugins {
		if !r.wantsPrefixes(conf) {
			continue
		}
		filled, err := plugin.Calico{}.WithPrefixes(conf, prefixes())
		if err != nil {
			return job, err
		}
		job.Network.Plugins[i] = filled
	}
	return job, nil
}

// withNode is withPrefixes with the node's prefixes.
func (r *resolver) withNode(job Job) (Job, error) {
	return r.withPrefixes(job, func() []netip.Prefix { return r.nodeFacts().PodCIDRs })
}

// withPod drops a plugin's IPAM section if the pod has unmanaged addresses.
func (r *resolver) withPod(job Job) (Job, error) {
	for i, conf := range job.Network.Plugins {
		if conf.Type != plugin.CalicoType || r.catalog.planners[conf.Type] == nil {
			continue
		}
		static, changed, err := plugin.Calico{}.Static(conf, job.Request)
		if err != nil {
			return job, err
		}
		if changed {
			job.Network.Plugins = slices.Clone(job.Network.Plugins)
			job.Network.Plugins[i] = static
		}
	}
	return job, nil
}

// allocateRequest returns the allocation request of an ADD.
func (r *run) allocateRequest(conf model.PluginConf) (ipam.Request, error) {
	q := allocateRequest(r.job.Request, conf)
	var err error
	if q.PodRequest, err = r.a.catalog.requestedAddresses(r.job.Request, conf); err != nil {
		return q, err
	}
	q.PodRequest.NamespaceLabels = r.job.NamespaceLabels
	return q, nil
}

// withAny is withPrefixes for a release of addresses, which goes by the owner's name, whatever their prefix.
func (r *resolver) withAny(job Job) Job {
	any := func() []netip.Prefix {
		known := r.nodeFacts().PodCIDRs
		return append(slices.Clone(known), netip.PrefixFrom(netip.IPv4Unspecified(), 0),
			netip.PrefixFrom(netip.IPv6Unspecified(), 0))
	}
	if filled, err := r.withPrefixes(job, any); err == nil {
		return filled
	}
	return job // the configuration is invalid
}
