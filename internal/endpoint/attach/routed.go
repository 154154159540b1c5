// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// Node is what the cluster says of this node, as far as configurations leave it open.
type Node struct {
	// PodCIDRs are the prefixes of its pods.
	PodCIDRs []netip.Prefix
	// MTU is that of its pods; 0 leaves it to the kernel.
	MTU int
}

// node is what is known of this node now.
func (a *Attacher) node() Node {
	if a.cfg.Node == nil {
		return Node{}
	}
	return a.cfg.Node()
}

// podMTU is the node's word for a plugin that asks for it, else 0.
func (a *Attacher) podMTU(conf model.PluginConf) int {
	if conf.Type != plugin.CalicoType {
		return 0
	}
	return a.node().MTU
}

// wantsPrefixes tells whether a plugin's configuration names the node's prefixes by a word.
func (a *Attacher) wantsPrefixes(conf model.PluginConf) bool {
	return conf.Type == plugin.CalicoType && a.cfg.Planners[conf.Type] != nil && plugin.Calico{}.WantsPrefixes(conf)
}

// changes tells whether a plugin's configuration may be another one by what the node and the pod say.
func (a *Attacher) changes(conf model.PluginConf) bool {
	return conf.Type == plugin.CalicoType && a.cfg.Planners[conf.Type] != nil
}

// withPrefixes puts prefixes in the place of the words for them.
func (a *Attacher) withPrefixes(job Job, prefixes func() []netip.Prefix) (Job, error) {
	if !slices.ContainsFunc(job.Network.Plugins, a.wantsPrefixes) {
		return job, nil
	}
	job.Network.Plugins = slices.Clone(job.Network.Plugins)
	for i, conf := range job.Network.Plugins {
		if !a.wantsPrefixes(conf) {
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
func (a *Attacher) withNode(job Job) (Job, error) {
	return a.withPrefixes(job, func() []netip.Prefix { return a.node().PodCIDRs })
}

// withPod has a plugin ask no IPAM where the pod brings its addresses along.
func (a *Attacher) withPod(job Job) (Job, error) {
	for i, conf := range job.Network.Plugins {
		if conf.Type != plugin.CalicoType || a.cfg.Planners[conf.Type] == nil {
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

// gates waits for what the plugins of a job wait for.
func (a *Attacher) gates(ctx context.Context, job Job) error {
	for _, conf := range job.Network.Plugins {
		of := a.can(conf).Gates
		if of == nil || a.cfg.Gates == nil {
			continue
		}
		urls, err := of(conf)
		if err == nil && len(urls) > 0 {
			err = a.cfg.Gates(ctx, urls)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ask is what an allocator is asked for an ADD.
func (r *run) ask(conf model.PluginConf) (ipam.Ask, error) {
	q := ask(r.job.Request, conf)
	var err error
	if q.Wishes, err = r.a.wishes(r.job.Request, conf); err != nil {
		return q, err
	}
	q.Wishes.NamespaceLabels = r.job.NamespaceLabels
	return q, nil
}

// withAny is withPrefixes for what gives addresses back: that goes by their owner's name, wherever they are from.
func (a *Attacher) withAny(job Job) Job {
	any := func() []netip.Prefix {
		known := a.node().PodCIDRs
		return append(slices.Clone(known), netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0))
	}
	if filled, err := a.withPrefixes(job, any); err == nil {
		return filled
	}
	return job // its configuration is wrong, and so is whatever would be made of it
}
