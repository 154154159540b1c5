// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/lab/connectivity"
	"github.com/weft-net/weft/internal/netns"
)

// networkStatus is the annotation with the status of a pod's networks.
const networkStatus = "k8s.v1.cni.cncf.io/network-status"

// PodNetwork is an additional network of a pod.
type PodNetwork struct {
	Name      string       `json:"name"`
	Interface string       `json:"interface"`
	IPs       []netip.Addr `json:"ips"`
}

// networksOf parses a pod's annotation; it returns no networks if the annotation is invalid.
func networksOf(annotations map[string]string) []PodNetwork {
	var all []struct {
		Name, Interface string
		IPs             []string
		Default         bool
	}
	out := []PodNetwork{}
	if json.Unmarshal([]byte(annotations[networkStatus]), &all) != nil {
		return out
	}
	for _, n := range all {
		if n.Default {
			continue
		}
		one := PodNetwork{Name: n.Name, Interface: n.Interface, IPs: []netip.Addr{}}
		for _, text := range n.IPs {
			if a, err := netip.ParseAddr(text); err == nil {
				one.IPs = append(one.IPs, a)
			}
		}
		out = append(out, one)
	}
	return out
}

// endpointOn returns the pod's endpoint in one of its networks, with its namespace open. Its problem is set if one of the
// other endpoints of the network has the same address.
func (p PodStatus) endpointOn(n PodNetwork, others []connectivity.Endpoint) connectivity.Endpoint {
	e := connectivity.Endpoint{Name: p.Namespace + "/" + p.Name, Addrs: n.IPs}
	for _, other := range others {
		i := slices.IndexFunc(n.IPs, func(a netip.Addr) bool { return slices.Contains(other.Addrs, a) })
		if i >= 0 && other.Name != e.Name {
			e.Problem = fmt.Sprintf("address %s is also used by %s", n.IPs[i], other.Name)
		}
	}
	var err error
	if e.NS, err = netns.Open(p.Netns); err != nil {
		e.Problem = err.Error()
	}
	return e
}

// testNetworks tests connectivity in each additional network that at least two pods have.
func (st Status) testNetworks(ctx context.Context, timeout time.Duration) ([]connectivity.Network, error) {
	of := map[string][]connectivity.Endpoint{}
	var names []string
	defer func() {
		for _, all := range of {
			for _, e := range all {
				if e.NS != nil {
					_ = e.NS.Close()
				}
			}
		}
	}()
	for _, p := range st.Pods {
		for _, n := range p.Networks {
			if p.finished() || p.problem() != "" || len(n.IPs) == 0 {
				continue
			}
			if of[n.Name] == nil {
				names = append(names, n.Name)
			}
			of[n.Name] = append(of[n.Name], p.endpointOn(n, of[n.Name]))
		}
	}
	slices.Sort(names)
	var out []connectivity.Network
	for _, name := range names {
		if len(of[name]) < 2 {
			continue
		}
		r, err := connectivity.Run(ctx, connectivity.Config{Endpoints: of[name], Timeout: timeout, Expect: st.expect(name)})
		if err != nil {
			return nil, fmt.Errorf("network %s: %w", name, err)
		}
		out = append(out, connectivity.Network{Network: name, Report: r})
	}
	return out, nil
}
