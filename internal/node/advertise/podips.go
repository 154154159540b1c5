// SPDX-License-Identifier: Apache-2.0

package advertise

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/cluster/facts"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/cluster/store/kube"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/membership"
	"github.com/weft-net/weft/internal/notify"
)

// retryFirst and retryLongest are the first and the longest pause before a failed write is retried.
const retryFirst, retryLongest = time.Second, 30 * time.Second

// Attachments are the attachments of this node.
type Attachments interface {
	// UnmanagedAddrs returns the addresses that pods use outside of IPAM.
	UnmanagedAddrs() ([]attach.UnmanagedAddr, error)
}

// PodIPsConfig configures PodIPs.
type PodIPsConfig struct {
	// Permitted are the prefixes that unmanaged addresses may be in.
	Permitted   []netip.Prefix
	Node        membership.Node
	Facts       *facts.Facts
	Attachments Attachments
	// Kubernetes or Directory is the store of the node's object.
	Kubernetes *kube.Store
	Directory  *dir.Store
	Log        *slog.Logger
	After      func(time.Duration) <-chan time.Time
}

// PodIPs advertises the addresses that this node's pods use outside of IPAM.
type PodIPs struct {
	cfg     PodIPsConfig
	changed notify.Chan
}

// NewPodIPs returns a PodIPs.
func NewPodIPs(cfg PodIPsConfig) *PodIPs { return &PodIPs{cfg: cfg, changed: notify.New()} }

// Changed requests another pass.
func (p *PodIPs) Changed() { p.changed.Notify() }

// Run keeps the annotation of the node's object that lists the unmanaged addresses of its pods, until ctx ends.
func (p *PodIPs) Run(ctx context.Context) error {
	changed, cancel := p.cfg.Facts.Subscribe()
	defer cancel()
	pause, trouble := retryFirst, ""
	var published []model.UnmanagedAddress
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-p.changed:
		case <-again:
		}
		again = nil
		next, err := p.advertise(ctx, published)
		if err == nil {
			published, pause, trouble = next, retryFirst, ""
			continue
		}
		if words := err.Error(); words != trouble && ctx.Err() == nil {
			trouble = words
			p.cfg.Log.Warn("agent could not advertise all addresses of its pods", "err", err)
		}
		again, pause = p.cfg.After(pause), min(2*pause, retryLongest)
	}
}

// advertise writes differences and returns what is advertised now.
func (p *PodIPs) advertise(ctx context.Context, published []model.UnmanagedAddress) ([]model.UnmanagedAddress, error) {
	self, known := p.cfg.Node.Self()
	if !known {
		return published, nil // retried at the next event
	}
	all, err := p.cfg.Attachments.UnmanagedAddrs()
	if err != nil {
		return published, err
	}
	next := p.sequence(all, slices.Concat(published, self.Unmanaged))
	if slices.Equal(next, self.Unmanaged) {
		return next, nil
	}
	text, err := store.FormatUnmanaged(next)
	if err != nil {
		return published, err
	}
	if p.cfg.Kubernetes != nil {
		status := kube.NodeStatus{Annotations: map[string]string{store.UnmanagedAnnotation: text}}
		if text == "" {
			status = kube.NodeStatus{Dropped: []string{store.UnmanagedAnnotation}}
		}
		err = p.cfg.Kubernetes.PatchNode(ctx, self.Name, status)
	} else if p.cfg.Directory != nil {
		_, err = p.cfg.Directory.Modify(ctx, store.NodeKey(self.Name),
			store.Annotate(map[string]string{store.UnmanagedAnnotation: text}))
	}
	if err != nil {
		return published, fmt.Errorf("node %s: %w", self.Name, err)
	}
	return next, nil
}

// sequence returns the addresses to advertise: those that the configuration permits. An address that is advertised
// already keeps its sequence number; a new one gets the next number of the cluster.
func (p *PodIPs) sequence(all []attach.UnmanagedAddr, before []model.UnmanagedAddress) []model.UnmanagedAddress {
	var out []model.UnmanagedAddress
	for _, b := range all {
		if !slices.ContainsFunc(p.cfg.Permitted, func(permitted netip.Prefix) bool { return permitted.Contains(b.Addr) }) ||
			slices.ContainsFunc(out, func(o model.UnmanagedAddress) bool { return o.Addr == b.Addr }) {
			continue
		}
		one := model.UnmanagedAddress{Addr: b.Addr, Pod: b.Pod.String(), UID: b.Pod.UID}
		if i := slices.IndexFunc(before, func(o model.UnmanagedAddress) bool {
			return o.Addr == one.Addr && o.Pod == one.Pod && o.UID == one.UID
		}); i >= 0 {
			one.Sequence = before[i].Sequence
		} else {
			for _, n := range p.cfg.Facts.Cluster().Nodes {
				for _, o := range n.Unmanaged {
					if o.Addr == one.Addr {
						one.Sequence = max(one.Sequence, o.Sequence+1)
					}
				}
			}
		}
		out = append(out, one)
	}
	slices.SortFunc(out, func(a, b model.UnmanagedAddress) int { return a.Addr.Compare(b.Addr) })
	return out
}
