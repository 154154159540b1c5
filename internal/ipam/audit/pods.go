// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/weft-net/weft/internal/cluster/store"
)

// Pods are all pods, with the addresses that they report.
type Pods struct {
	pods   podIndex
	having map[netip.Addr][]string
}

// ReadPods reads all pods.
func ReadPods(ctx context.Context, objects store.Objects) (Pods, error) {
	p := Pods{pods: podIndex{}, having: map[netip.Addr][]string{}}
	if err := store.Each(ctx, objects, store.Pods(), p.pods.note); err != nil && !errors.Is(err, store.ErrNotFound) {
		return p, fmt.Errorf("list of pods: %w", err)
	}
	for _, name := range p.pods.names() {
		one := p.pods[name]
		for _, a := range one.addrs {
			if !one.finished {
				p.having[a] = append(p.having[a], name)
			}
		}
	}
	return p, nil
}

// Gone reports whether there is no pod "namespace/name", as far as pods are known.
func (p Pods) Gone(name string) bool { return p.pods.gone(name) }

// Moved reports whether that pod has other addresses in the cluster's network, and not this one.
func (p Pods) Moved(name string, a netip.Addr) bool { return p.pods.moved(name, a) }

// Node returns the node that the pod is on.
func (p Pods) Node(name string) string { return p.pods[name].node }

// Having returns the pods that report an address, sorted.
func (p Pods) Having(a netip.Addr) []string { return p.having[a] }

// In returns the addresses of a prefix that pods report.
func (p Pods) In(cidr netip.Prefix) map[netip.Addr][]string {
	out := map[netip.Addr][]string{}
	for a, names := range p.having {
		if cidr.Contains(a) {
			out[a] = names
		}
	}
	return out
}
