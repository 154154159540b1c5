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

// retryFirst and retryLongest are the first and the longest pause before what could not be written is tried again.
const retryFirst, retryLongest = time.Second, 30 * time.Second

// Attachments are those of this node.
type Attachments interface {
	// Brought are the addresses that pods use outside of IPAM.
	Brought() ([]attach.Brought, error)
}

// PodIPsConfig is that of PodIPs.
type PodIPsConfig struct {
	// Permitted are the addresses that pods may bring along.
	Permitted   []netip.Prefix
	Node        membership.Node
	Facts       *facts.Facts
	Attachments Attachments
	// Kubernetes or Directory has the node's object.
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

// Changed has the addresses looked at again.
func (p *PodIPs) Changed() { p.changed.Notify() }

// Run keeps the part of the node's object that tells the other nodes which addresses its pods have brought along, until
// ctx ends.
func (p *PodIPs) Run(ctx context.Context) error {
	changed, cancel := p.cfg.Facts.Subscribe()
	defer cancel()
	pause, trouble := retryFirst, ""
	var said []model.Brought
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
		next, err := p.advertise(ctx, said)
		if err == nil {
			said, pause, trouble = next, retryFirst, ""
			continue
		}
		if words := err.Error(); words != trouble && ctx.Err() == nil {
			trouble = words
			p.cfg.Log.Warn("other nodes do not know all addresses of this node's pods", "err", err)
		}
		again, pause = p.cfg.After(pause), min(2*pause, retryLongest)
	}
}

// advertise writes what differs, and gives what is advertised now.
func (p *PodIPs) advertise(ctx context.Context, said []model.Brought) ([]model.Brought, error) {
	self, known := p.cfg.Node.Self()
	if !known {
		return said, nil // there will be news
	}
	all, err := p.cfg.Attachments.Brought()
	if err != nil {
		return said, err
	}
	next := p.inTurn(all, slices.Concat(said, self.Brought))
	if slices.Equal(next, self.Brought) {
		return next, nil
	}
	text, err := store.WriteBrought(next)
	if err != nil {
		return said, err
	}
	if p.cfg.Kubernetes != nil {
		status := kube.NodeStatus{Annotations: map[string]string{store.BroughtAnnotation: text}}
		if text == "" {
			status = kube.NodeStatus{Dropped: []string{store.BroughtAnnotation}}
		}
		err = p.cfg.Kubernetes.PatchNode(ctx, self.Name, status)
	} else if p.cfg.Directory != nil {
		_, err = p.cfg.Directory.Modify(ctx, store.NodeKey(self.Name),
			store.Annotate(map[string]string{store.BroughtAnnotation: text}))
	}
	if err != nil {
		return said, fmt.Errorf("node %s: %w", self.Name, err)
	}
	return next, nil
}

// inTurn is what is told of addresses: those that the configuration permits. Who has one already keeps its turn, and
// who comes after others, on whatever node, has the next.
func (p *PodIPs) inTurn(all []attach.Brought, before []model.Brought) []model.Brought {
	var out []model.Brought
	for _, b := range all {
		if !slices.ContainsFunc(p.cfg.Permitted, func(permitted netip.Prefix) bool { return permitted.Contains(b.Addr) }) ||
			slices.ContainsFunc(out, func(o model.Brought) bool { return o.Addr == b.Addr }) {
			continue
		}
		one := model.Brought{Addr: b.Addr, Pod: b.Pod.String(), UID: b.Pod.UID}
		if i := slices.IndexFunc(before, func(o model.Brought) bool {
			return o.Addr == one.Addr && o.Pod == one.Pod && o.UID == one.UID
		}); i >= 0 {
			one.Turn = before[i].Turn
		} else {
			for _, n := range p.cfg.Facts.Cluster().Nodes {
				for _, o := range n.Brought {
					if o.Addr == one.Addr {
						one.Turn = max(one.Turn, o.Turn+1)
					}
				}
			}
		}
		out = append(out, one)
	}
	slices.SortFunc(out, func(a, b model.Brought) int { return a.Addr.Compare(b.Addr) })
	return out
}
