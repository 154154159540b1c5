// SPDX-License-Identifier: Apache-2.0

package unrecorded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

const (
	// retryPause is the pause before the datastore is asked again.
	retryPause = time.Second
	// ownerWait is how long interfaces of unknown pods delay the rules: the kubelet publishes the addresses of a pod some
	// seconds after it started.
	ownerWait = 10 * time.Second
	// checkPeriod is how often the node checks whether the interfaces still exist, and whether their pods are known.
	checkPeriod = 5 * time.Second
)

// Config configures Policies.
type Config struct {
	Node string
	// Cluster returns the current snapshot; Synced is closed when there is one. Both are nil where the agent does not
	// follow the cluster.
	Cluster func() *model.Cluster
	Synced  <-chan struct{}
	Objects store.Objects
	// Links lists the node's links, complete or not at all.
	Links func(ctx context.Context) ([]state.Link, error)
	Log   *slog.Logger
	After func(time.Duration) <-chan time.Time
}

// Enforcer enforces policies on interfaces.
type Enforcer interface {
	Admit(ctx context.Context, all ...model.WorkloadEndpoint) error
	Attached(keys ...model.AttachmentKey)
	Release(ctx context.Context, key model.AttachmentKey) error
}

// Policies enforces network policies on interfaces without a record.
type Policies struct {
	cfg Config
	all []Interface
	// earlier are the endpoints that this node's earlier agent has published.
	earlier []model.WorkloadEndpoint

	enforced []model.WorkloadEndpoint
	unowned  []Interface // no pod of the cluster is known to have their addresses
}

// NewPolicies returns the Policies of those interfaces.
func NewPolicies(cfg Config, all []Interface) *Policies { return &Policies{cfg: cfg, all: all} }

// Resolve returns the endpoints of the interfaces, by what this node's earlier agent has published and by the addresses
// in the pods' status. It waits for the datastore, until ctx ends, and for the pods of all interfaces, for ownerWait:
// until then the rules that the earlier agent has written stay in force. An interface whose pod is not known is
// reported: it may be of no pod of this cluster.
func (p *Policies) Resolve(ctx context.Context) []model.WorkloadEndpoint {
	if len(p.all) == 0 {
		return nil
	}
	var err error
	if p.earlier, err = p.published(ctx); err != nil {
		return nil // the agent ends
	}
	if p.cfg.Cluster != nil {
		select {
		case <-ctx.Done():
			return nil
		case <-p.cfg.Synced:
		}
	}
	for _, i := range p.all {
		if i.HostLink != "" {
			p.unowned = append(p.unowned, i)
			continue
		}
		p.cfg.Log.Warn("record of a pod's interface is lost; policies are not enforced on it until the pod is started again",
			"attachment", i.Attachment.String())
	}
	p.enforced = p.owned()
	var limit <-chan time.Time
	if p.cfg.Cluster != nil && len(p.unowned) > 0 {
		limit = p.cfg.After(ownerWait)
	}
	for waits := limit != nil; waits && len(p.unowned) > 0; p.enforced = append(p.enforced, p.owned()...) {
		select {
		case <-ctx.Done():
			return nil
		case <-limit:
			waits = false
		case <-p.cfg.After(retryPause):
		}
	}
	for _, i := range p.unowned {
		p.cfg.Log.Warn("record of an interface is lost, and no pod of the cluster has its addresses; policies are not enforced on it",
			"attachment", i.Attachment.String(), "addresses", i.Addrs)
	}
	return p.enforced
}

// owned takes the interfaces out of unowned whose pods are known, and returns their endpoints.
func (p *Policies) owned() []model.WorkloadEndpoint {
	var pods []model.Pod
	if p.cfg.Cluster != nil {
		pods = p.cfg.Cluster().Pods
	}
	var found []model.WorkloadEndpoint
	p.unowned = slices.DeleteFunc(p.unowned, func(i Interface) bool {
		e := model.WorkloadEndpoint{
			Attachment: i.Attachment, Node: p.cfg.Node, IfName: i.Attachment.IfName, HostLink: i.HostLink, HostEnd: i.HostEnd,
			Addrs: i.Addrs,
		}
		if !p.own(&e, p.earlier, pods) {
			return false
		}
		p.cfg.Log.Warn("record of a pod's interface is lost; policies are enforced, but nothing is repaired until the pod is started again",
			"pod", e.Pod.String(), "interface", e.HostLink)
		found = append(found, e)
		return true
	})
	return found
}

// published returns the endpoints that this node's earlier agent has published.
func (p *Policies) published(ctx context.Context) ([]model.WorkloadEndpoint, error) {
	kind := store.NodeEndpoints()
	for {
		o, err := p.cfg.Objects.Get(ctx, kind, kind.Key("", p.cfg.Node))
		switch {
		case errors.Is(err, store.ErrNotFound):
			return nil, nil
		case err == nil:
			all, err := o.NodeEndpoints()
			if err != nil {
				p.cfg.Log.Warn("published endpoints of this node cannot be read", "err", err)
			}
			return all, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-p.cfg.After(retryPause):
		}
	}
}

// own sets the endpoint's pod; false if it is not known.
func (p *Policies) own(e *model.WorkloadEndpoint, published []model.WorkloadEndpoint, pods []model.Pod) bool {
	for _, was := range published {
		if was.IfName == e.IfName && anyOf(was.Addrs, e.Addrs) {
			e.Pod, e.Network, e.VM = was.Pod, was.Network, was.VM
			return true
		}
	}
	for _, pod := range pods {
		if pod.Node == p.cfg.Node && !pod.HostNetwork && anyOf(pod.IPs, e.Addrs) {
			e.Pod = model.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
			return true
		}
	}
	return false
}

func anyOf(all, some []netip.Addr) bool {
	return slices.ContainsFunc(some, func(a netip.Addr) bool { return slices.Contains(all, a) })
}

// Run ends enforcement on interfaces that are gone, and begins it on those whose pods have become known, until ctx ends
// or no interface is left.
func (p *Policies) Run(ctx context.Context, at Enforcer) error {
	for len(p.enforced)+len(p.unowned) > 0 {
		select {
		case <-ctx.Done():
			return nil
		case <-p.cfg.After(checkPeriod):
		}
		links, err := p.cfg.Links(ctx)
		if err != nil {
			p.cfg.Log.Warn("interfaces of the node cannot be read", "err", err)
			continue
		}
		gone := func(name string) bool {
			return !slices.ContainsFunc(links, func(l state.Link) bool { return l.Name == name })
		}
		p.unowned = slices.DeleteFunc(p.unowned, func(i Interface) bool { return gone(i.HostLink) })
		var left []model.WorkloadEndpoint
		for _, e := range p.enforced {
			if !gone(e.HostLink) {
				left = append(left, e)
				continue
			}
			if err := at.Release(ctx, e.Attachment); err != nil {
				return fmt.Errorf("policies of %s: %w", e.Attachment, err)
			}
		}
		p.enforced = append(left, p.admit(ctx, at)...)
	}
	return nil
}

// admit begins enforcement on the interfaces whose pods have become known. Those on which it fails are tried again.
func (p *Policies) admit(ctx context.Context, at Enforcer) []model.WorkloadEndpoint {
	before := slices.Clone(p.unowned)
	var done []model.WorkloadEndpoint
	for _, e := range p.owned() {
		if err := at.Admit(ctx, e); err != nil {
			p.cfg.Log.Warn("policies of a pod whose record is lost could not be written, and are retried",
				"pod", e.Pod.String(), "err", err)
			i := slices.IndexFunc(before, func(i Interface) bool { return i.Attachment == e.Attachment })
			p.unowned = append(p.unowned, before[i])
			continue
		}
		at.Attached(e.Attachment)
		done = append(done, e)
	}
	return done
}

// Present returns those of the interfaces whose end on the node exists: the others are gone with their pods.
func Present(all []Interface) ([]Interface, error) {
	if len(all) == 0 {
		return nil, nil
	}
	there, err := present()
	return slices.DeleteFunc(slices.Clone(all), func(i Interface) bool { return !there[i.HostLink] }), err
}

// present returns the names of the node's links.
func present() (map[string]bool, error) {
	links, err := net.Interfaces()
	names := map[string]bool{}
	for _, l := range links {
		names[l.Name] = true
	}
	return names, err
}
