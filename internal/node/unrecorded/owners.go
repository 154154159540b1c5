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
)

const (
	// retryPause is the pause before the datastore is asked again.
	retryPause = time.Second
	// checkPeriod is how often the node checks whether the interfaces still exist.
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
	Log     *slog.Logger
	After   func(time.Duration) <-chan time.Time
}

// Policies enforces network policies on interfaces without a record.
type Policies struct {
	cfg Config
	all []Interface

	enforced []model.WorkloadEndpoint
}

// NewPolicies returns the Policies of those interfaces.
func NewPolicies(cfg Config, all []Interface) *Policies { return &Policies{cfg: cfg, all: all} }

// Resolve returns the endpoints of the interfaces, by what this node's earlier agent has published and by the addresses
// in the pods' status. It waits for the datastore, until ctx ends: until then the rules that the earlier agent has
// written stay in force. An interface whose pod is not known is reported: it may be of no pod of this cluster.
func (p *Policies) Resolve(ctx context.Context) []model.WorkloadEndpoint {
	if len(p.all) == 0 {
		return nil
	}
	published, err := p.published(ctx)
	if err != nil {
		return nil // the agent ends
	}
	var pods []model.Pod
	if p.cfg.Cluster != nil {
		select {
		case <-ctx.Done():
			return nil
		case <-p.cfg.Synced:
		}
		pods = p.cfg.Cluster().Pods
	}
	for _, i := range p.all {
		e := model.WorkloadEndpoint{
			Attachment: i.Attachment, Node: p.cfg.Node, IfName: i.Attachment.IfName, HostLink: i.HostLink, HostEnd: i.HostEnd,
			Addrs: i.Addrs,
		}
		switch {
		case i.HostLink == "":
			p.cfg.Log.Warn("record of a pod's interface is lost; policies are not enforced on it until the pod is started again",
				"attachment", i.Attachment.String())
			continue
		case !p.own(&e, published, pods):
			p.cfg.Log.Warn("record of an interface is lost, and no pod of the cluster has its addresses; policies are not enforced on it",
				"attachment", i.Attachment.String(), "addresses", i.Addrs)
			continue
		}
		p.cfg.Log.Warn("record of a pod's interface is lost; policies are enforced, but nothing is repaired until the pod is started again",
			"pod", e.Pod.String(), "interface", e.HostLink)
		p.enforced = append(p.enforced, e)
	}
	return p.enforced
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

// Run ends enforcement on interfaces that are gone, until ctx ends or none is left.
func (p *Policies) Run(ctx context.Context, release func(context.Context, model.AttachmentKey) error) error {
	for len(p.enforced) > 0 {
		select {
		case <-ctx.Done():
			return nil
		case <-p.cfg.After(checkPeriod):
		}
		there, err := present()
		if err != nil {
			p.cfg.Log.Warn("interfaces of the node cannot be read", "err", err)
			continue
		}
		var left []model.WorkloadEndpoint
		for _, e := range p.enforced {
			if there[e.HostLink] {
				left = append(left, e)
				continue
			}
			if err := release(ctx, e.Attachment); err != nil {
				return fmt.Errorf("policies of %s: %w", e.Attachment, err)
			}
		}
		p.enforced = left
	}
	return nil
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
