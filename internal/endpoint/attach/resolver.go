// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// resolver completes configurations by what stands outside of them: what the cluster says of the node, what the pod
// asks for, and the plugins that one of type flannel stands for.
type resolver struct {
	catalog *catalog
	node    func() Node // nil: nothing is known of the node
	records *recordStore
}

// Node is what the cluster says of this node, as far as configurations leave it open.
type Node struct {
	// PodCIDRs are the prefixes of its pods.
	PodCIDRs []netip.Prefix
	// MTU is that of its pods; 0 leaves it to the kernel.
	MTU int
}

// nodeFacts is what is known of this node now.
func (r *resolver) nodeFacts() Node {
	if r.node == nil {
		return Node{}
	}
	return r.node()
}

// podMTU is the node's word for a plugin that asks for it, else 0.
func (r *resolver) podMTU(conf model.PluginConf) int {
	if conf.Type != plugin.CalicoType {
		return 0
	}
	return r.nodeFacts().MTU
}

// wantsPrefixes reports whether a plugin's configuration names the node's prefixes by a word.
func (r *resolver) wantsPrefixes(conf model.PluginConf) bool {
	return conf.Type == plugin.CalicoType && r.catalog.planners[conf.Type] != nil && plugin.Calico{}.WantsPrefixes(conf)
}

// changes reports whether a plugin's configuration may be another one by what the node and the pod say.
func (r *resolver) changes(conf model.PluginConf) bool {
	return conf.Type == plugin.CalicoType && r.catalog.planners[conf.Type] != nil
}

// withPrefixes puts prefixes in the place of the words for them.
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

// withNode is withPrefixes by what is known now.
func (r *resolver) withNode(job Job) (Job, error) {
	return r.withPrefixes(job, func() []netip.Prefix { return r.nodeFacts().PodCIDRs })
}

// withPod has a plugin ask no IPAM where the pod brings its addresses along.
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

// ask is what an allocator is asked for an ADD.
func (r *run) ask(conf model.PluginConf) (ipam.Ask, error) {
	q := ask(r.job.Request, conf)
	var err error
	if q.Wishes, err = r.a.catalog.wishes(r.job.Request, conf); err != nil {
		return q, err
	}
	q.Wishes.NamespaceLabels = r.job.NamespaceLabels
	return q, nil
}

// withAny is withPrefixes for what gives addresses back: that goes by their owner's name, wherever they are from.
func (r *resolver) withAny(job Job) Job {
	any := func() []netip.Prefix {
		known := r.nodeFacts().PodCIDRs
		return append(slices.Clone(known), netip.PrefixFrom(netip.IPv4Unspecified(), 0),
			netip.PrefixFrom(netip.IPv6Unspecified(), 0))
	}
	if filled, err := r.withPrefixes(job, any); err == nil {
		return filled
	}
	return job // its configuration is wrong, and so is whatever would be made of it
}
