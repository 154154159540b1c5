// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/lab/reach"
	"github.com/weft-net/weft/internal/netns"
)

// Reach sends packets between all nodes and pods of the lab. A node is tried at its address on every wire.
func (d Dir) Reach(ctx context.Context, timeout time.Duration) (reach.Report, error) {
	st, err := d.Status(ctx)
	if err != nil {
		return reach.Report{}, err
	}
	r, err := st.reach(ctx, timeout)
	if err != nil {
		return r, err
	}
	if r.Networks, err = st.reachOn(ctx, timeout); err != nil {
		return r, err
	}
	r.Skipped, err = d.services()
	return r, err
}

// services are the Services of the store, to which no packets are sent: nothing in a lab translates their addresses.
func (d Dir) services() (out []reach.Skip, err error) {
	s, err := dir.Open(d.Store())
	if err != nil {
		return nil, err
	}
	objects, err := s.List("Service")
	for _, o := range objects {
		out = append(out, reach.Skip{Name: o.Key.String(), Reason: "no kube-proxy runs in a lab"})
	}
	return out, err
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
	return reach.Run(ctx, reach.Config{Endpoints: endpoints, Timeout: timeout, Expect: st.expect})
}

// problem says why a pod cannot be tried.
func (p PodStatus) problem() string {
	switch {
	case p.State == stateMissing:
		return fmt.Sprintf("%s does not run pod %s/%s", p.Node, p.Namespace, p.Name)
	case p.ID == "" || p.Netns == "" || len(p.IPs) == 0:
		return strings.TrimSuffix(
			fmt.Sprintf("pod %s/%s is %s and has no network: %s", p.Namespace, p.Name, p.State, p.Reason), ": ",
		)
	}
	return ""
}

// over tells whether a pod has ended and is to be reached no more.
func (p PodStatus) over() bool { return p.State == "Succeeded" || p.State == "Failed" }

// How long packets may take to flow, and how long is waited until it is said what does not flow yet.
const (
	flowLimit = time.Minute
	flowQuiet = 5 * time.Second
)

// settle waits until the nodes know their way to each other's pods: up means that packets flow.
func (u Up) settle(ctx context.Context) error {
	st, err := u.Dir.Status(ctx)
	if err != nil {
		return err
	}
	ways := st.oneWayEach()
	begun, said := time.Now(), false
	for timeout := 300 * time.Millisecond; ; timeout = min(timeout+timeout/4, 2*time.Second) {
		r, err := ways.reach(ctx, timeout)
		if err != nil {
			return err
		}
		if r.OK() {
			return nil
		}
		waited := time.Since(begun)
		if waited > flowLimit {
			return standing(
				fmt.Sprintf("look at `weft lab reach --dir %[1]s`; take it down with `weft lab down --dir %[1]s`", u.Dir),
				"after %.0f s %s", flowLimit.Seconds(), notFlowing(r),
			)
		}
		if waited > flowQuiet && !said {
			said = true
			u.Say("waiting: %s", notFlowing(r))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// notFlowing says which packets do not go as they should.
func notFlowing(r reach.Report) string {
	var wrong []string
	for _, f := range r.Failed {
		if f.Expected {
			wrong = append(wrong, fmt.Sprintf("%s to %s by %s: %s", f.From, f.To, f.Proto, f.Error))
		}
	}
	for _, f := range r.Leaked {
		wrong = append(wrong, fmt.Sprintf("%s to %s by %s: %s", f.From, f.To, f.Proto, f.Error))
	}
	return fmt.Sprintf("%d of %d pairs do not reach as they should, for example %s", len(wrong), r.Pairs, wrong[0])
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
