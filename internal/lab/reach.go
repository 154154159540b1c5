// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/reach"
)

// Reach sends packets between all nodes and pods of the lab. A node is tried at its address on every wire.
func (d Dir) Reach(ctx context.Context, timeout time.Duration) (reach.Report, error) {
	st, err := d.Status(ctx)
	if err != nil {
		return reach.Report{}, err
	}
	return st.reach(ctx, timeout)
}

func (st Status) reach(ctx context.Context, timeout time.Duration) (reach.Report, error) {
	var endpoints []reach.Endpoint
	defer func() {
		for _, e := range endpoints {
			if e.NS != nil {
				_ = e.NS.Close()
			}
		}
	}()
	add := func(name, path string, addrs []netip.Addr, problem string) {
		e := reach.Endpoint{Name: name, Addrs: addrs, Problem: problem}
		if problem == "" {
			var err error
			if e.NS, err = netns.Open(path); err != nil {
				e.Problem = err.Error()
			}
		}
		endpoints = append(endpoints, e)
	}
	for _, n := range st.Nodes {
		add(n.Name, n.Netns, slices.Concat(n.Wires...), "")
	}
	for _, p := range st.Pods {
		if p.over() || st.around(p) {
			continue
		}
		add(p.Namespace+"/"+p.Name, p.Netns, p.IPs, p.problem())
	}
	defer st.guests(ctx, &endpoints)()
	return reach.Run(ctx, reach.Config{Endpoints: endpoints, Timeout: timeout})
}

// problem says why a pod cannot be tried.
func (p PodStatus) problem() string {
	switch {
	case p.State == stateMissing:
		return fmt.Sprintf("%s does not run pod %s/%s", p.Node, p.Namespace, p.Name)
	case p.ID == "" || p.Netns == "" || len(p.IPs) == 0:
		return strings.TrimSuffix(fmt.Sprintf("pod %s/%s is %s and has no network: %s", p.Namespace, p.Name, p.State, p.Reason), ": ")
	}
	return ""
}

// over tells whether a pod has ended and is to be reached no more.
func (p PodStatus) over() bool { return p.State == "Succeeded" || p.State == "Failed" }

// settle waits until the nodes know their way to each other's pods: up means that packets flow.
func (u Up) settle(ctx context.Context, l Layout) error {
	st, err := u.Dir.Status(ctx)
	if err != nil {
		return err
	}
	if len(st.Problems) > 0 {
		return errors.New(st.Problems[0])
	}
	ways := st.oneWayEach()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		r, err := ways.reach(ctx, 300*time.Millisecond)
		if err != nil {
			return err
		}
		if len(r.Failed) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			// Not an end of the lab: whoever looks for the reason needs it running.
			f := r.Failed[0]
			u.Say("after 20 s %d of %d pairs do not reach yet, for example %s to %s by %s: %s", len(r.Failed), r.Pairs, f.From, f.To, f.Proto, f.Error)
			return nil
		}
	}
}

// oneWayEach is the lab with its nodes and one pod of each, which is enough to see every route.
func (st Status) oneWayEach() Status {
	seen := map[string]bool{}
	var pods []PodStatus
	for _, p := range st.Pods {
		if !seen[p.Node] && !p.HostNetwork && !p.over() && !st.around(p) && p.problem() == "" {
			seen[p.Node] = true
			pods = append(pods, p)
		}
	}
	st.Pods, st.Machines = pods, nil
	return st
}
