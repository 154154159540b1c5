// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/lab/reach"
	"github.com/weft-net/weft/internal/netns"
)

// networkStatus is the annotation by which agents say which networks a pod has.
const networkStatus = "k8s.v1.cni.cncf.io/network-status"

// PodNetwork is a network that a pod has beside the cluster's.
type PodNetwork struct {
	Name      string       `json:"name"`
	Interface string       `json:"interface"`
	IPs       []netip.Addr `json:"ips"`
}

// networksOf reads the annotation of a pod; what cannot be read says nothing.
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

// on is the pod as an end of one of its networks, with its namespace open. others are the ends that the network has
// already: an address that one of them has, too, is a problem.
func (p PodStatus) on(n PodNetwork, others []reach.Endpoint) reach.Endpoint {
	e := reach.Endpoint{Name: p.Namespace + "/" + p.Name, Addrs: n.IPs}
	for _, other := range others {
		i := slices.IndexFunc(n.IPs, func(a netip.Addr) bool { return slices.Contains(other.Addrs, a) })
		if i >= 0 && other.Name != e.Name {
			e.Problem = fmt.Sprintf("it has address %s, and so has %s", n.IPs[i], other.Name)
		}
	}
	var err error
	if e.NS, err = netns.Open(p.Netns); err != nil {
		e.Problem = err.Error()
	}
	return e
}

// reachOn tries the pods of each further network among each other. Of a network that one pod alone has there is nothing
// to try.
func (st Status) reachOn(ctx context.Context, timeout time.Duration) ([]reach.Network, error) {
	of := map[string][]reach.Endpoint{}
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
			if p.over() || p.problem() != "" || len(n.IPs) == 0 {
				continue
			}
			if of[n.Name] == nil {
				names = append(names, n.Name)
			}
			of[n.Name] = append(of[n.Name], p.on(n, of[n.Name]))
		}
	}
	slices.Sort(names)
	var out []reach.Network
	for _, name := range names {
		if len(of[name]) < 2 {
			continue
		}
		r, err := reach.Run(ctx, reach.Config{Endpoints: of[name], Timeout: timeout, Expect: st.expect})
		if err != nil {
			return nil, fmt.Errorf("network %s: %w", name, err)
		}
		out = append(out, reach.Network{Network: name, Report: r})
	}
	return out, nil
}
